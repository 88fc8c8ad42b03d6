// Renderings of many templates, each in a process of its own as dex starts it, without the time
// that Python takes to start: forks of one that has its modules.
#pragma once
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "common/text/python_process.h"
#include "tests/support/temp_dir.h"

namespace dex::test {

class ForkedPython {
 public:
  // No rendering may take longer than `seconds`.
  ForkedPython(const std::string& python, int seconds) : server_(python, kServer, kDeadline) {
    const std::string place = (dir_.path() / "server").string();
    server_.ask({{"place", place}, {"script", std::string(kRenderTemplate)}, {"seconds", seconds}});
    setenv("DEX_FORKED_PYTHON", place.c_str(), 1);
  }
  ~ForkedPython() { unsetenv("DEX_FORKED_PYTHON"); }

  std::string program() const { return DEX_BINARY_DIR "/forked_python"; }  // for --python

 private:
  static constexpr std::chrono::seconds kDeadline{60};
  static constexpr const char* kServer = R"(
import gc, json, os, signal, socket, sys, traceback
import datetime, resource
import jinja2, jinja2.ext, jinja2.meta, jinja2.nodes, jinja2.sandbox
asked = json.loads(sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), 'little')))
script = compile(asked['script'], 'render_template.py', 'exec')
alarm = signal.alarm
signal.alarm = lambda seconds: alarm(min(seconds, asked['seconds']))
listener = socket.socket(socket.AF_UNIX)
listener.bind(asked['place'])
listener.listen()
os.write(1, (4).to_bytes(8, 'little') + b'true')
gc.freeze()
while True:
    link = listener.accept()[0]
    files = socket.recv_fds(link, 1, 3)[1]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            link.close()
            listener.close()
            for i, file in enumerate(files):
                os.dup2(file, i)
                os.close(file)
            exec(script, {'__name__': '__main__'})
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    for file in files:
        os.close(file)
    status = os.waitpid(child, 0)[1]
    try:
        link.send(bytes([os.WEXITSTATUS(status), os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0]))
    except OSError:
        pass
    link.close()
)";

  TempDir dir_;
  PythonProcess server_;
};

}  // namespace dex::test
