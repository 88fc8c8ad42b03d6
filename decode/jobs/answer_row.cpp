#include "decode/jobs/answer_row.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/base/digest.h"

namespace dex {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kIdLength = 24;

Json row(const JobLine& line, int status, Json body, Json error) {
  // equal lines of a file are different requests
  const std::string id =
      sha256_of(fmt::format("{}\n{}", line.number, line.digest)).substr(0, kIdLength);
  const std::string custom_id = custom_id_of(line);
  return {{"id", "batch_req_" + id},
          {"custom_id", custom_id.empty() ? Json(nullptr) : Json(custom_id)},
          {"response",
           {{"status_code", status}, {"request_id", "req_" + id}, {"body", std::move(body)}}},
          {"error", std::move(error)}};
}

}  // namespace

std::string answer_row(const JobLine& line, const AnswerFrame& frame, std::size_t prompt_tokens,
                       const DecodeResult& result, const std::string& text) {
  const Job& job = std::get<Job>(line.content);
  const bool chat = !job.messages.empty();
  Json choice = {{"index", 0},
                 {"finish_reason", result.finish_reason},
                 {"logprobs", nullptr},
                 {"token_ids", result.ids()},
                 {"stop_reason", result.stop_id ? Json(*result.stop_id) : Json(nullptr)}};
  if (chat)
    choice["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  else
    choice["text"] = text;
  const Json body = {{"id", (chat ? "chatcmpl-" : "cmpl-") + line.digest.substr(0, kIdLength)},
                     {"object", chat ? "chat.completion" : "text_completion"},
                     {"created", job.created.value_or(frame.created)},
                     {"model", frame.model},
                     {"choices", {choice}},
                     {"usage",
                      {{"prompt_tokens", prompt_tokens},
                       {"completion_tokens", result.tokens.size()},
                       {"total_tokens", prompt_tokens + result.tokens.size()}}}};
  return line_of(row(line, 200, body, nullptr));
}

std::string error_row(const JobLine& line, const std::string& reason) {
  return line_of(row(
      line, 400, nullptr,
      {{"code", "invalid_request"}, {"message", fmt::format("line {}: {}", line.number, reason)}}));
}

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace dex
