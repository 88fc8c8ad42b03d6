// Altered templates: each is rendered as Jinja2 renders it, with the answers and nothing else as
// targets, or refused.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <random>

#include "common/text/chat_spans.h"
#include "common/text/chat_template.h"
#include "common/text/python_process.h"
#include "tests/support/forked_python.h"
#include "tests/support/python.h"
#include "tests/support/scale.h"
#include "tests/support/shown_chat.h"
#include "tests/support/temp_dir.h"
#include "tests/support/tiny_tokenizer.h"

using namespace dex;
using nlohmann::json;

namespace {

const std::vector<std::string> kTemplates = {
    "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + "
    "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}",
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = "
    "'<|im_start|>' + message['role'] + '\n\n'+ message['content'] | trim + '</s>' %}{% if "
    "loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor "
    "%}",
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}{% set system = "
    "messages[0]['content'] %}{% else %}{% set rest = messages %}{% set system = false %}{% endif "
    "%}{% for message in rest %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "
    "raise_exception('roles') }}{% endif %}{% if loop.index0 == 0 and system != false %}{% set "
    "content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set "
    "content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + "
    "'[INST] ' + content.strip() + ' [/INST]' }}{% else %}{{ ' ' + content.strip() + ' ' + "
    "eos_token }}{% endif %}{% endfor %}",
    "{%- for message in messages %}\n{%- if message.role == 'assistant' %}\n    {%- set content = "
    "message.content %}\n    {%- if '</think>' in content %}\n        {%- set content = "
    "content.split('</think>')[-1].lstrip('\\n') %}\n    {%- endif %}\n    {{- "
    "'<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' + content + '<|im_end|>\\n' }}\n{%- "
    "else "
    "%}\n    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n{%- "
    "endif %}\n{%- endfor %}"};

// Whole pieces, put between others.
const std::vector<std::string> kPieces = {"{{ bos_token }}",
                                          "{{ eos_token }}",
                                          "\n",
                                          " ",
                                          "<|im_end|>",
                                          "<|im_start|>",
                                          "</s>",
                                          "<think>",
                                          "word",
                                          "\xC3\xA9",
                                          "{{ messages | length }}",
                                          "{{ messages[-1]['content'] }}",
                                          "{{ messages[0].content | trim }}",
                                          "{% break %}",
                                          "{{ raise_exception('no') }}",
                                          "{{ loop.index }}",
                                          "{%- if loop.last %}</s>{% endif %}",
                                          "{% if loop.first -%} x {%- endif %}"};
// What takes the place of a message's content.
const std::vector<std::string> kContents = {"(# | trim)",
                                            "(# | upper)",
                                            "#[:4]",
                                            "(# + #)",
                                            "#.strip('\\n')",
                                            "(# | replace('a', 'b'))",
                                            "#.split(' ')[0]",
                                            "('' + #)",
                                            "(#.lstrip() + '\\n')",
                                            "(' ' + #.rstrip())",
                                            "'none'",
                                            "(# if loop.last else '')",
                                            "(# if '<' not in # else 'typed')",
                                            "(# | tojson)",
                                            "(#)"};

using Random = std::mt19937;

std::size_t below(std::size_t n, Random& random) {
  return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
}

// One of the places where `mark` begins in a text, or nowhere.
std::size_t some(const std::string& text, const std::string& mark, Random& random) {
  std::vector<std::size_t> places;
  for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; ++at)
    places.push_back(at);
  return places.empty() ? std::string::npos : places[below(places.size(), random)];
}

void alter_once(std::string& text, Random& random) {
  const std::string content =
      text.find("m['content']") != std::string::npos ? "m['content']" : "message['content']";
  std::size_t at = std::string::npos;
  switch (below(5, random)) {
    case 0:  // a piece before a tag or behind one
      at = some(text, below(2, random) ? "{%" : "{{", random);
      if (at != std::string::npos) text.insert(at, kPieces[below(kPieces.size(), random)]);
      break;
    case 1:
      at = some(text, below(2, random) ? "%}" : "}}", random);
      if (at != std::string::npos) text.insert(at + 2, kPieces[below(kPieces.size(), random)]);
      break;
    case 2: {  // another content
      at = some(text, content, random);
      if (at == std::string::npos) break;
      std::string other;
      for (const char c : kContents[below(kContents.size(), random)])
        other += c == '#' ? content : std::string(1, c);
      text.replace(at, content.size(), other);
      break;
    }
    case 3: {  // another literal
      at = some(text, "'", random);
      if (at != std::string::npos && at + 3 < text.size() && text[at + 2] != '\'')
        text[at + 1 + below(2, random)] = "x \n<|>"[below(6, random)];
      break;
    }
    default:  // anything
      at = below(text.size(), random);
      if (below(2, random))
        text.erase(at, 1 + below(6, random));
      else
        text.insert(at, text.substr(below(text.size(), random), below(40, random)));
  }
  if (text.empty()) text = " ";
}

std::string altered(std::string text, Random& random) {
  for (std::size_t i = 1 + below(2, random); i > 0; --i) alter_once(text, random);
  return text;
}

const std::vector<std::vector<Message>> kTalks = {
    {{"user", "Alpha one"}, {"assistant", "Beta two."}},
    {{"system", " Gamma "},
     {"user", "\nDelta three"},
     {"assistant", " Epsilon\n"},
     {"user", "Zeta <|im_end|> eta"},
     {"assistant", "Theta</s> iota"}}};

// Jinja2 by itself: a template and messages to a text, or nothing where it refuses.
constexpr const char* kJudge = R"(
import json, os, sys
import jinja2, jinja2.ext, jinja2.sandbox
answers = os.fdopen(os.dup(1), 'wb')
def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)
made = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
made.filters['tojson'] = lambda x: json.dumps(x, ensure_ascii=False)
made.globals['raise_exception'] = raise_exception
while True:
    size = int.from_bytes(sys.stdin.buffer.read(8), 'little')
    if size == 0:
        break
    asked = json.loads(sys.stdin.buffer.read(size))
    try:
        template = made.from_string(asked.pop('template'))
        text = template.render(add_generation_prompt=False, bos_token='<s>', eos_token='</s>', **asked)
    except Exception:
        text = ''
    body = json.dumps(text).encode()
    answers.write(len(body).to_bytes(8, 'little') + body)
    answers.flush()
)";

std::string reference(PythonProcess& judge, const std::string& text,
                      const std::vector<Message>& talk) {
  json messages = json::array();
  for (const Message& message : talk)
    messages.push_back({{"role", message.role}, {"content", message.content}});
  return judge.ask({{"template", text}, {"messages", messages}});
}

// The answers, each perhaps trimmed, and after each perhaps one control.
bool is_answers(std::string_view text, const std::vector<Message>& talk) {
  for (const Message& message : talk) {
    if (message.role != "assistant") continue;
    const std::string_view core = stripped(message.content);
    const std::size_t at = text.find(core);
    if (at == std::string_view::npos || !is_blank_text(text.substr(0, at))) return false;
    text.remove_prefix(at + core.size());
    while (!text.empty() && (text.front() == ' ' || text.front() == '\n')) text.remove_prefix(1);
    for (const std::string_view control :
         {"<|im_end|>", "<|im_start|>", "</s>", "<s>", "<think>", "</think>"})
      if (text.starts_with(control)) {
        text.remove_prefix(control.size());
        break;
      }
  }
  return is_blank_text(text);
}

}  // namespace

TEST_CASE("an altered template is rendered as Jinja2 does, or refused", "[slow]") {
  const auto python = test::python_with_jinja2();
  if (!python) return;
  test::TinyBpe tiny;
  tiny.controls = {"<|im_start|>", "<|im_end|>", "<s>", "</s>", "<think>", "</think>"};
  const test::TempDir dir;
  dir.write("tokenizer.json", test::tiny_bpe_json(tiny).dump());
  const auto tokenizer = load_tokenizer(dir.path());
  const json sees = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  PythonProcess judge(*python, kJudge, std::chrono::seconds(60));
  const test::ForkedPython forked(*python, /*seconds=*/5);
  int rendered = 0, refused = 0, no_template = 0;
  for (int seed = 0; seed < test::times(60, 10'000); ++seed) {
    Random random{unsigned(seed)};
    const std::string text = altered(kTemplates[std::size_t(seed) % kTemplates.size()], random);
    INFO("seed " << seed << ": " << text);
    json config = sees;
    config["chat_template"] = text;
    dir.write("tokenizer_config.json", config.dump());
    std::optional<ChatTemplate> chat;
    try {
      chat = ChatTemplate::of_model(dir.path(), {.python = forked.program()});
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::usage);
      ++no_template;
      continue;
    }
    for (const auto& talk : kTalks) {
      try {
        const RenderedChat made = chat->render(talk, *tokenizer, false);
        CHECK(test::whole_text(made, *tokenizer) == reference(judge, text, talk));
        const std::string targets = test::supervised_text(made, *tokenizer);
        INFO("targets " << targets);
        CHECK(is_answers(targets, talk));
        ++rendered;
      } catch (const ConversationRefused&) {
        ++refused;
      }
    }
  }
  // the alterations are such that each way is met
  CHECK(rendered > 10);
  CHECK(refused > 10);
  CHECK(no_template > 10);
  WARN(rendered << " rendered, " << refused << " refused, " << no_template << " no templates");
}
