// dex decode: one prompt to the terminal, or a file of jobs to a file of answers.
#include "launch/program/decode_command.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>

#include "common/base/command_line.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/peak_memory.h"
#include "decode/jobs/run_jobs.h"
#include "decode/report.h"
#include "decode/session.h"
#include "decode/verify.h"
#include "launch/program/session_options.h"

namespace dex {
namespace {

struct DecodeOptions {
  SessionOptions session;
  Methods methods;
  std::string method, prompt, chat, prompt_ids;
  std::filesystem::path input, output;
  int max_tokens = 128;
  bool overwrite = false, verify = false, json = false, ignore_stop = false, parse_special = false;

  Limits limits() const { return {max_tokens, ignore_stop}; }
  RunJobsOptions jobs() const {
    return {.input = input,
            .output = output,
            .overwrite = overwrite,
            .verify = verify,
            .limits = limits(),
            .parse_special = parse_special};
  }
  // The one that is named, or the one that is best here: the log then says why.
  const Method& chosen(const Session& session) const {
    if (!method.empty()) return methods.named(method, "--method is");
    std::string why;
    const Method& best = methods.fastest(session, why);
    spdlog::info("method {}", why);
    return best;
  }
  Session open() const {
    return Session(session, [this](const DepthSet& depths) { methods.check(depths); });
  }
};

std::vector<Token> parse_ids(const std::string& text) {
  std::vector<Token> ids;
  for (const char *at = text.data(), *end = at + text.size();; ++at) {
    Token id = 0;
    const auto [after, error] = std::from_chars(at, end, id);
    require(error == std::errc() && (after == end || *after == ','), ExitCode::usage,
            "--prompt-ids is \"{}\", wanted ids such as 1,2,3", text);
    ids.push_back(id);
    at = after;
    if (at == end) return ids;
  }
}

std::vector<Token> prompt_of(const DecodeOptions& options, const Session& session) {
  if (!options.prompt_ids.empty()) return parse_ids(options.prompt_ids);
  if (!options.chat.empty()) return session.chat_ids(std::vector<Message>{{"user", options.chat}});
  return session.prompt_ids(options.prompt, options.parse_special);
}

std::string text_of(const Session& session, const DecodeResult& result) {
  return session.model().tokenizer ? session.model().tokenizer->decode(result.text_ids(), false)
                                   : "";
}

int decode_prompt(const DecodeOptions& options) {
  const Session session = options.open();
  const auto prompt = prompt_of(options, session);
  const Method& method = options.chosen(session);
  const auto decoder = method.make(session);
  const DepthSet& explored = session.model().depths;

  std::optional<TextStream> stream;
  if (session.model().tokenizer && !options.json)
    stream.emplace(*session.model().tokenizer, /*continuation=*/true);
  const auto stream_out = [&](const CommittedToken& t) {
    if (!stream) return;
    std::cout << stream->add({&t.token, 1}) << std::flush;
  };
  const DecodeResult result = decoder->generate(prompt, options.limits(), stream_out);
  if (stream) std::cout << stream->finish() << "\n";

  DecodeTally tally(method.depths(explored));
  tally.add(result);
  nlohmann::json line = {{"command", "decode"},
                         {"method", method.name},
                         {"dtype", options.session.dtype},
                         {"ids", result.ids()},
                         {"ids_hash", fmt::format("{:016x}", hash_of(result.ids()))},
                         {"finish_reason", result.finish_reason},
                         {"prompt_tokens", prompt.size()},
                         {"text", text_of(session, result)}};
  line["counts"] = tally.json();
  show(tally.table());
  int code = 0;
  if (options.verify) {
    const DecodeResult plain = session.plain()->generate(prompt, options.limits(), {});
    DecodeTally plain_tally(options.methods.reference().depths(explored));
    plain_tally.add(plain);
    const auto difference = first_difference(plain, result);
    show(speed_table(plain_tally, tally, method.name));
    line["verified"] = !difference;
    line["plain"] = plain_tally.json();
    if (difference)
      spdlog::error("--verify: {}", *difference);
    else
      spdlog::info("--verify: {} ids and the bits of their final logits equal plain decoding's",
                   result.tokens.size());
    code = difference ? int(ExitCode::bug) : 0;
  }
  line["peak_memory_bytes"] = peak_memory_bytes();
  std::cout << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  return code;
}

void check(const DecodeOptions& o) {
  const int prompts =
      !o.prompt.empty() + !o.chat.empty() + !o.prompt_ids.empty() + !o.input.empty();
  require(prompts == 1, ExitCode::usage,
          "{} of --prompt, --chat, --prompt-ids and --input are given, wanted exactly one",
          prompts);
  require(o.input.empty() == o.output.empty(), ExitCode::usage,
          "--input and --output belong together");
  if (!o.method.empty()) o.methods.named(o.method, "--method is");
  require(o.max_tokens >= 1, ExitCode::usage, "--max-tokens is {}, wanted at least 1",
          o.max_tokens);
  if (!o.prompt_ids.empty()) parse_ids(o.prompt_ids);
  if (!o.output.empty()) check_output(o.jobs());
}

int run(const DecodeOptions& o) {
  check(o);
  if (o.input.empty()) return decode_prompt(o);
  const Session session = o.open();
  return run_jobs(session, o.chosen(session), o.jobs());
}

}  // namespace

void add_decode_command(CLI::App& program, std::function<int()>& chosen) {
  auto o = std::make_shared<DecodeOptions>();
  CLI::App& c = *program.add_subcommand("decode", "Decode a prompt or a file of prompts");
  add_session_options(c, o->session);
  c.add_option("--method", o->method,
               o->methods.described() + " (default: the quickest here, which the log names)");
  c.add_option("--prompt", o->prompt, "Text to continue");
  c.add_option("--chat", o->chat, "A user's message to answer, through the model's chat template");
  c.add_option("--prompt-ids", o->prompt_ids, "Token ids to continue, such as 1,2,3");
  c.add_option("--input", o->input, "Job lines (OpenAI batch form)");
  c.add_option("--output", o->output, "Answer lines, in input order");
  c.add_flag("--overwrite", o->overwrite, "Replace an --output that is there already");
  c.add_option("--max-tokens", o->max_tokens, "New tokens at most, where a job does not say")
      ->capture_default_str();
  o->methods.add_options(c);
  c.add_flag("--verify", o->verify,
             "Decode plainly too and compare ids and the bits of the final logits");
  c.add_flag("--ignore-stop", o->ignore_stop, "Go on past the model's end tokens");
  c.add_flag("--parse-special", o->parse_special, "Special tokens in --prompt become special ids");
  c.add_flag("--json", o->json, "Only the final JSON line on stdout");
  c.callback([o, &c, &chosen] {
    chosen = [o, &c] {
      spdlog::info("decode {}", command_line_of(c));
      return run(*o);
    };
  });
}

}  // namespace dex
