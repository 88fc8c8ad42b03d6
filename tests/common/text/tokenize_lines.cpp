// tokenize_lines MODEL_DIR [--controls | --chat TEMPLATE | --time REPEATS THREADS]: one JSON string
// a line on stdin (with --chat one list of messages, the last a user's); ids of each as one JSON
// list a line on stdout, or the seconds that tokenizing all of them took: by the clock, and of CPU
// time.
#include <atomic>
#include <chrono>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"

namespace {

void print_seconds(const dex::Tokenizer& tokenizer, const std::vector<std::string>& texts,
                   int threads) {
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu_start = std::clock();
  std::atomic<std::size_t> next{0}, ids{0};
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i)
    pool.emplace_back([&] {
      for (std::size_t at; (at = next++) < texts.size();) ids += tokenizer.encode(texts[at]).size();
    });
  for (auto& worker : pool) worker.join();
  const auto elapsed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cout << elapsed << " " << double(std::clock() - cpu_start) / CLOCKS_PER_SEC << std::endl;
}

std::vector<dex::Token> prompt_ids(const dex::Tokenizer& tokenizer, const std::string& name,
                                   const nlohmann::json& list) {
  std::vector<dex::Message> messages;
  for (const auto& message : list) messages.push_back({message["role"], message["content"]});
  return dex::ChatTemplate::named(name).render(messages, tokenizer, true).tokens;
}

int run(const std::vector<std::string>& arguments) {
  const auto tokenizer = dex::load_tokenizer(arguments.at(0));
  const bool controls = arguments.size() > 1 && arguments[1] == "--controls";
  const bool timed = arguments.size() > 3 && arguments[1] == "--time";
  if (arguments.size() > 2 && arguments[1] == "--chat") {
    for (std::string line; std::getline(std::cin, line);)
      std::cout << nlohmann::json(prompt_ids(*tokenizer, arguments[2], nlohmann::json::parse(line)))
                << "\n";
    return 0;
  }
  std::vector<std::string> texts;
  for (std::string line; std::getline(std::cin, line);)
    texts.push_back(nlohmann::json::parse(line));
  if (timed) {
    for (int i = 0; i < std::stoi(arguments[2]); ++i)
      print_seconds(*tokenizer, texts, std::stoi(arguments[3]));
    return 0;
  }
  for (const std::string& text : texts)
    std::cout << nlohmann::json(controls ? tokenizer->encode_with_special(text)
                                         : tokenizer->encode(text))
              << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const dex::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return int(error.code());
  }
}
