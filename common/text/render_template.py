# Renders chat templates as transformers does (utils/chat_template_utils.py there): same sandbox, same
# settings. dex runs it with `python -c`. Standard input and output carry messages: eight bytes of
# length, little endian, then JSON in UTF-8. The first one brings the template; each later one
# conversations, answered in their order. The end of standard input ends the process.
import sys

sys.path = [path for path in sys.path if path]  # nothing is imported from where dex happens to run
import json
import os
import select
import signal
import threading

requests = os.fdopen(os.dup(0), "rb")
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
signal.signal(signal.SIGINT, signal.SIG_IGN)  # dex decides when to stop
signal.signal(signal.SIGALRM, signal.SIG_DFL)


# A template that never ends does not look at its input. Where dex is killed meanwhile, this thread
# sees the other end close.
def leave_with_dex():
    dex = select.poll()
    dex.register(requests, select.POLLRDHUP)
    dex.poll()
    os._exit(0)


try:
    threading.Thread(target=leave_with_dex, daemon=True).start()
except RuntimeError:  # no thread to be had: the alarm remains
    pass


def read():
    head = requests.read(8)
    if len(head) < 8:
        sys.exit(0)
    body = requests.read(int.from_bytes(head, "little"))
    return json.loads(body)


def write(answer):
    body = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
    answers.write(len(body).to_bytes(8, "little") + body)
    answers.flush()


def limit_memory(most):
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (ImportError, ValueError, OSError):
        pass


try:
    import jinja2
    import jinja2.ext
    import jinja2.meta
    import jinja2.nodes
    import jinja2.sandbox
except ImportError as error:
    read()
    write({"error": f"{sys.executable}: {error}; wanted jinja2 3.1.6 or later"})
    sys.exit(0)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_whole")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _whole(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def to_json(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class Dict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class Namespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            Namespace._check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        Namespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace cannot hold {name!r}")


def compiled(text, now):
    from datetime import datetime

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    # one date for all of a run
    environment.globals["strftime_now"] = lambda form: datetime.fromtimestamp(now).strftime(form)
    environment.globals["dict"] = Dict()
    environment.globals["namespace"] = Namespace
    names = jinja2.meta.find_undeclared_variables(environment.parse(text))
    return environment.from_string(text), sorted(names)


def described(error):
    if type(error) is jinja2.exceptions.TemplateError:  # what raise_exception makes
        return str(error)
    return f"{type(error).__name__}: {error}"


def with_reasoning(message):
    reasoning = message.get("reasoning_content")
    if reasoning is None:
        return message
    return {"thinking": reasoning, **message, "reasoning_content": reasoning}


def render(template, seen, request):
    try:
        values = {**seen, **request.get("kwargs", {})}
        text = template.render(
            messages=[with_reasoning(message) for message in request["messages"]],
            tools=None,
            documents=None,
            add_generation_prompt=request["open"],
            **values,
        )
        text.encode()  # no half of a surrogate pair
        return {"text": text}
    except Exception as error:
        return {"error": described(error)}


def main():
    start = read()
    version = tuple(int(part) for part in jinja2.__version__.split(".")[:3] if part.isdigit())
    if version < (3, 1, 6):
        write({"error": f"{sys.executable}: jinja2 {jinja2.__version__}; wanted 3.1.6 or later"})
        return
    limit_memory(start["memory"])
    try:
        template, names = compiled(start["template"], start["now"])
    except Exception as error:
        line = getattr(error, "lineno", None)
        write({"refused": described(error) + (f", line {line}" if line else "")})
        return
    write({"jinja2": jinja2.__version__, "reads": names})
    while True:
        asked = read()
        signal.alarm(start["seconds"])  # nor one inside a single call, which lets no thread run
        write([render(template, start["sees"], request) for request in asked])
        signal.alarm(0)


main()
