// Final float32 logits of a list of ids, as raw numbers for compare_forward.py:
//   dump_logits MODEL_DIR IDS.json OUT.f32
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/log.h"
#include "tests/support/read_all.h"

int main(int argc, char** argv) {
  if (argc != 4) return std::fputs("dump_logits MODEL_DIR IDS.json OUT.f32\n", stderr), 2;
  dex::start_log(true);
  const auto json = nlohmann::json::parse(std::ifstream(argv[2]));
  const auto ids = (json.is_object() ? json.at("ids") : json).get<std::vector<dex::Token>>();
  const auto model = dex::Model::load(
      argv[1], dex::DepthSet({}, dex::read_model_config(argv[1]).num_layers), dex::Dtype::f32);
  const at::Tensor logits = dex::test::all_logits(model, ids, 128, 2).contiguous();
  std::ofstream(argv[3], std::ios::binary)
      .write(static_cast<const char*>(logits.data_ptr()),
             static_cast<std::streamsize>(logits.nbytes()));
  return 0;
}
