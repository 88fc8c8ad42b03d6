// Training over several ranks, here threads: any number of ranks and stages gives the bits of one
// rank.
#include <catch2/catch.hpp>
#include <fstream>
#include <limits>
#include <sstream>

#include "checkpoints/checkpoint.h"
#include "common/base/file.h"
#include "common/base/safetensors.h"
#include "common/model/tensors.h"
#include "data/batch_plan.h"
#include "tests/support/metrics.h"
#include "tests/support/temp_dir.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_samples.h"

using namespace dex;
namespace fs = std::filesystem;

namespace {

const std::vector<std::string> kStateFiles{"checkpoints/step-6/weights.safetensors",
                                           "checkpoints/step-6/moments.safetensors",
                                           "checkpoints/step-6/state.json"};

struct Training : test::ThreadRanks {
  test::TempDir dir;

  Training() {
    model = test::TinyModel{}.write(dir / "m");
    samples = test::tiny_samples(21, 97, 2);
    held_out = test::tiny_samples(5, 97, 3);
    options = {.depths = "1,3",
               .steps = 6,
               .batch_size = 4,
               .micro_batch = 1,
               .learning_rate = 1e-2,
               .dtype = "f32",
               .save_every = 2,
               .deterministic = true};
  }
  // Leaves `out`; no rank may fail.
  std::vector<test::RankResult> finish(const std::string& out, int ranks, int pipeline) {
    options.out = dir / out;
    world = ranks;
    stages = pipeline;
    auto results = run();
    for (const auto& result : results) {
      INFO((result.error ? result.error->what() : ""));
      CHECK(result.outcome);
    }
    return results;
  }
  // Runs of these ranks and stages leave the adapters, metrics and other `files` that "one" has.
  void check_like_one(const std::vector<std::pair<int, int>>& layouts,
                      const std::vector<std::string>& files) {
    for (const auto& [ranks, pipeline] : layouts) {
      INFO(options.init << ", " << ranks << " ranks, " << pipeline << " stages");
      const std::string out = "out" + std::to_string(ranks) + std::to_string(pipeline);
      finish(out, ranks, pipeline);
      CHECK(adapter(out) == adapter("one"));
      CHECK(metrics(out) == metrics("one"));
      for (const std::string& name : files) CHECK(file(out + "/" + name) == file("one/" + name));
    }
  }
  std::string file(const std::string& name) const { return read_file(dir / name); }
  std::string adapter(const std::string& out) const {
    return file(out + "/adapter_config.json") + file(out + "/adapter_model.safetensors");
  }
  std::string metrics(const std::string& out) const {
    return test::metrics_without_times(file(out + "/metrics.jsonl"));
  }
};

// The model and the loss as the papers write them, in float64, one sample at a time.
class Reference {
 public:
  explicit Reference(const fs::path& dir)
      : file_(WeightFile::open(dir)), c_(read_model_config(dir)) {}

  at::Tensor weight(const std::string& name) const {
    return view_of(file_.at("model." + name)).to(at::kDouble);
  }

  // Hidden states (tokens, D) after each of the layers.
  std::vector<at::Tensor> states(const std::vector<Token>& tokens) const {
    const auto count = std::int64_t(tokens.size());
    at::Tensor x =
        weight("embed_tokens.weight")
            .index_select(0, at::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end())));
    std::vector<at::Tensor> after;
    for (int i = 0; i < c_.num_layers; ++i) {
      const auto w = [&](const std::string& name) {
        return weight("layers." + std::to_string(i) + "." + name + ".weight");
      };
      const at::Tensor y = norm(x, w("input_layernorm"));
      const auto heads = [&](const at::Tensor& z, int n) {
        return z.view({count, n, c_.head_dim}).transpose(0, 1);
      };
      const at::Tensor q = rotate(heads(y.matmul(w("self_attn.q_proj").t()), c_.num_heads));
      const int group = c_.num_heads / c_.num_kv_heads;
      const at::Tensor k = rotate(heads(y.matmul(w("self_attn.k_proj").t()), c_.num_kv_heads))
                               .repeat_interleave(group, 0);
      const at::Tensor v =
          heads(y.matmul(w("self_attn.v_proj").t()), c_.num_kv_heads).repeat_interleave(group, 0);
      const at::Tensor future = at::ones({count, count}, at::kBool).triu(1);
      const at::Tensor scores = (q.matmul(k.transpose(1, 2)) / std::sqrt(double(c_.head_dim)))
                                    .masked_fill(future, -1e300);
      x = x + scores.softmax(-1)
                  .matmul(v)
                  .transpose(0, 1)
                  .reshape({count, -1})
                  .matmul(w("self_attn.o_proj").t());
      const at::Tensor z = norm(x, w("post_attention_layernorm"));
      x = x + (at::silu(z.matmul(w("mlp.gate_proj").t())) * z.matmul(w("mlp.up_proj").t()))
                  .matmul(w("mlp.down_proj").t());
      after.push_back(x);
    }
    return after;
  }

  // p: norm, up, up bias, down, down bias, alpha
  at::Tensor induced(const at::Tensor& h, const std::vector<at::Tensor>& p) const {
    const at::Tensor inner = at::silu(norm(h, p[0]).matmul(p[1].t()) + p[2]);
    return h + p[5] * (inner.matmul(p[3].t()) + p[4]);
  }
  at::Tensor log_answers(const at::Tensor& h) const {
    return norm(h, weight("norm.weight")).matmul(weight("embed_tokens.weight").t()).log_softmax(-1);
  }

 private:
  at::Tensor norm(const at::Tensor& x, const at::Tensor& w) const {
    return x / (x.pow(2).mean(-1, true) + double(c_.rms_norm_eps)).sqrt() * w;
  }
  at::Tensor rotate(const at::Tensor& x) const {  // (heads, tokens, size)
    const std::int64_t half = c_.head_dim / 2;
    const at::Tensor angle = at::arange(x.size(1), at::kDouble).unsqueeze(1) *
                             at::pow(c_.rope.theta, -at::arange(half, at::kDouble) / double(half));
    const at::Tensor a = x.slice(-1, 0, half), b = x.slice(-1, half);
    return at::cat({a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()}, -1);
  }

  WeightFile file_;
  ModelConfig c_;
};

// Gradients at the start of the run, by depth and name.
std::map<std::string, at::Tensor> reference_gradients(const Training& run,
                                                      const std::vector<int>& depths) {
  const Reference reference(run.model);
  std::map<std::string, at::Tensor> leaves;
  std::vector<std::vector<at::Tensor>> parameters;
  for (int depth : depths) {
    parameters.emplace_back();
    for (const auto& [name, tensor] :
         AdapterWeights::paper_start(read_model_config(run.model), 64, 0, depth).named())
      parameters.back().push_back(leaves["depth." + std::to_string(depth) + "." + name] =
                                      tensor.to(at::kDouble).requires_grad_(true));
  }
  at::Tensor loss = at::zeros({}, at::kDouble);
  double rows = 0;
  for (std::uint64_t index : batch_indices(0, 0, 0, 4, run.samples.size())) {
    const Sample& sample = run.samples[index];
    std::vector<std::int64_t> picked;
    for (std::size_t i = 1; i < sample.tokens.size(); ++i)
      if (sample.supervised[i]) picked.push_back(std::int64_t(i) - 1);
    rows += double(picked.size());
    const auto states = reference.states(sample.tokens);
    const auto at_rows = [&](int depth) {
      return states[depth - 1].index_select(0, at::tensor(picked));
    };
    const at::Tensor teacher = reference.log_answers(at_rows(4));
    for (std::size_t k = 0; k < depths.size(); ++k)
      loss = loss + (teacher.exp() * (teacher - reference.log_answers(reference.induced(
                                                    at_rows(depths[k]), parameters[k]))))
                        .sum();
  }
  (loss / rows / double(depths.size())).backward();
  for (auto& [name, leaf] : leaves) leaf = leaf.grad();
  return leaves;
}

}  // namespace

TEST_CASE(
    "a step's gradients are autograd's in float64 for every layout of micro-batches and ranks") {
  Training run;
  run.options.steps = 1;
  run.options.stop_after = 1;
  const auto wanted = reference_gradients(run, {1, 3});
  struct Layout {
    int micro_batch, world, stages;
  };
  for (const Layout layout : {Layout{4, 1, 1},
                              {2, 1, 1},
                              {1, 1, 1},
                              {4, 2, 2},
                              {2, 2, 2},
                              {1, 2, 2},
                              {4, 2, 1},
                              {2, 2, 1},
                              {1, 2, 1},
                              {4, 4, 2},
                              {2, 4, 2},
                              {1, 4, 2},
                              {1, 4, 1},
                              {2, 3, 3}}) {
    INFO("micro-batches of " << layout.micro_batch << ", " << layout.world << " ranks, "
                             << layout.stages << " stages");
    run.options.micro_batch = layout.micro_batch;
    const std::string out = "out" + std::to_string(layout.micro_batch) +
                            std::to_string(layout.world) + std::to_string(layout.stages);
    run.finish(out, layout.world, layout.stages);
    const WeightFile moments =
        WeightFile::open(run.dir / out / "checkpoints/step-1/moments.safetensors");
    for (const auto& [name, gradient] : wanted) {
      INFO(name);
      const at::Tensor seen =
          // AdamW's first moment is 0.1 g
          view_of(moments.at("first." + name)).to(at::kDouble) / 0.1;
      CHECK(((seen - gradient).norm() / gradient.norm()).item<double>() < 1e-5);
    }
  }
}

TEST_CASE("any number of ranks and stages leaves the files of one rank, byte for byte") {
  Training run;
  run.options.init = GENERATE("paper", "ridge");
  run.options.eval_every = 4;
  run.finish("one", 1, 1);
  run.check_like_one({{2, 1}, {2, 2}, {3, 3}, {4, 2}, {4, 1}, {6, 3}}, kStateFiles);
}

TEST_CASE(
    "four stages and held-out text that does not divide evenly leave the files of one rank, too") {
  Training run;
  run.options.depths = "1,2,3";
  run.options.micro_batch = 2;
  run.options.eval_every = 3;
  run.finish("one", 1, 1);
  CHECK(run.metrics("one").find("\"evaluation\":{\"trained\"") != std::string::npos);
  run.check_like_one({{2, 2}, {3, 3}, {4, 4}, {8, 4}, {3, 1}, {4, 1}}, {"best/best.json"});
}

TEST_CASE(
    "a step that is no number for one micro-batch is skipped by all ranks, with the files of one "
    "rank") {
  Training run;
  run.model = test::TinyModel{.tied = false}.write(run.dir / "untied");
  for (auto* samples : {&run.samples, &run.held_out})
    for (Sample& sample : *samples)
      for (Token& token : sample.tokens) token = std::min<Token>(token, 95);
  // of the third step
  Sample& poisoned = run.samples[batch_indices(0, 0, 2, 4, run.samples.size())[1]];
  poisoned.tokens[0] = 96;
  poisoned.supervised.back() = 1;
  run.alter = [](int, const Model& model) {
    if (model.embedding)
      model.embedding->matrix().plain()[96].fill_(std::numeric_limits<float>::infinity());
  };
  run.options.on_nan = "skip";
  run.options.nan_limit = 2;
  run.options.steps = 6;
  run.finish("one", 1, 1);
  const auto state = nlohmann::json::parse(run.file("one/checkpoints/step-6/state.json"));
  CHECK(state["optimizer_steps"] == 5);
  CHECK(state["skipped"] == 1);
  CHECK(run.metrics("one").find("\"skipped\":1,\"step\":3") != std::string::npos);
  run.check_like_one({{2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 1}, {4, 2}}, kStateFiles);
}

TEST_CASE(
    "large tensors by a wire that runs messages in order, as NCCL does, leave the files of one "
    "rank") {
  Training run;
  run.options.init = GENERATE("paper", "ridge");
  run.finish("one", 1, 1);
  run.tensors = test::ThreadRanks::Tensors::one_way_groups;
  run.check_like_one({{2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 2}, {6, 3}}, kStateFiles);
}

TEST_CASE("one group for both ways would wait for ever: between stages and between replicas") {
  Training run;
  run.held_out.clear();
  run.world = 2;
  run.stages = GENERATE(1, 2);
  run.options.out = run.dir / "out";
  run.tensors = test::ThreadRanks::Tensors::one_group;
  for (const auto& result : run.run()) CHECK(result.error);
}

TEST_CASE("what only one rank sees to be no number changes the weights of none") {
  Training run;
  run.held_out.clear();
  run.world = run.stages = 2;
  run.options.out = run.dir / "out";
  run.options.save_every = 1;
  run.options.keep = 9;
  run.alter = [](int rank, const Model& model) {
    if (rank == 1) model.head->norm_weight().fill_(std::numeric_limits<float>::infinity());
  };
  const auto refused = [&](const std::string& word, int saved) {
    for (const auto& result : run.run()) {
      REQUIRE(result.error);
      INFO(result.error->what());
      CHECK(result.error->code() == ExitCode::usage);
      CHECK(std::string(result.error->what()).find(word) != std::string::npos);
    }
    const auto state = nlohmann::json::parse(
        run.file("out/checkpoints/step-" + std::to_string(saved) + "/state.json"));
    CHECK(state["step"] == saved);
    CHECK(state["optimizer_steps"] == 0);
    CHECK_FALSE(fs::exists(run.dir / "out/checkpoints" / ("step-" + std::to_string(saved + 1))));
  };
  refused("step 1: the loss is nan", 0);
  const std::string start = run.file("out/checkpoints/step-0/weights.safetensors");
  run.options.resume = true;
  run.options.on_nan = "skip";
  run.options.nan_limit = 3;
  refused("after 2 skipped in a row", 2);
  CHECK(run.file("out/checkpoints/step-2/weights.safetensors") == start);
}

TEST_CASE("a run goes on with another number of ranks and gives the same bytes") {
  Training run;
  run.finish("whole", 1, 1);
  struct Part {
    int world, stages;
    std::int64_t stop_after;
  };
  for (const Part part : {Part{2, 2, 1}, {1, 1, 3}, {4, 2, 4}, {2, 1, 0}}) {
    run.options.stop_after = part.stop_after;
    run.finish("parts", part.world, part.stages);
    run.options.resume = true;
  }
  CHECK(run.adapter("parts") == run.adapter("whole"));
  CHECK(run.metrics("parts") == run.metrics("whole"));
}

TEST_CASE("a signal to any one rank stops all after the same step, saved") {
  Training run;
  run.options.steps = 200;
  run.options.save_every = 0;
  const int signalled = GENERATE(0, 1, 3);
  std::atomic<int> asked = 0;
  run.stop = [&](int rank) { return rank == signalled && ++asked > 12; };
  const auto results = run.finish("out", 4, 2);
  const auto step = results[0].outcome->summary["step"].get<int>();
  CHECK(step < 100);
  for (const auto& result : results) {
    CHECK_FALSE(result.outcome->finished);
    CHECK(result.outcome->summary["step"] == step);
  }
  CHECK(
      fs::exists(run.dir / "out/checkpoints" / ("step-" + std::to_string(step)) / "MANIFEST.json"));
}

TEST_CASE("a signal during an evaluation loses no step, and the evaluation is made again") {
  Training run;
  run.options.save_every = 0;
  run.options.eval_every = 2;
  run.finish("whole", 1, 1);
  const int world = GENERATE(1, 2, 4);
  const int signalled = world - 1;
  // Held-out text asks once a pass of the replica, a step once; one rank alone also before it and
  // per micro-batch. Two of the evaluation after the second step are let through.
  const int evaluation = world == 4 ? 2 : 5, step = world == 1 ? 1 + 4 : 1;
  std::atomic<int> asked = 0;
  run.stop = [&](int rank) { return rank == signalled && ++asked > evaluation + 2 * step + 1; };
  run.options.out = run.dir / "parts";
  run.world = world;
  run.stages = world == 1 ? 1 : 2;
  for (const auto& result : run.run()) {
    REQUIRE(result.error);
    INFO(result.error->what());
    CHECK(result.error->code() == ExitCode::temporary);
  }
  CHECK(fs::exists(run.dir / "parts/checkpoints/step-2/MANIFEST.json"));
  run.stop = [](int) { return false; };
  run.options.resume = true;
  run.finish("parts", world, run.stages);
  CHECK(run.adapter("parts") == run.adapter("whole"));
  CHECK(run.metrics("parts") == run.metrics("whole"));
}

TEST_CASE("more replicas than micro-batches, and steps without any target, come out the same") {
  Training run;
  run.options.micro_batch = 4;
  for (std::size_t i = 0; i < run.samples.size(); i += 2)
    std::fill(run.samples[i].supervised.begin(), run.samples[i].supervised.end(), std::uint8_t{0});
  run.options.batch_size = 1;
  run.options.steps = 12;
  run.finish("one", 1, 1);
  run.finish("four", 4, 2);
  CHECK(run.adapter("four") == run.adapter("one"));
  CHECK(run.metrics("four") == run.metrics("one"));
}

TEST_CASE(
    "ranks that were asked for different runs are refused before the first step, with the "
    "difference") {
  const auto refused = [](const std::string& difference,
                          const std::function<void(TrainOptions&)>& change) {
    Training run;
    run.options.out = run.dir / "out";
    run.world = run.stages = 2;
    run.change = [&](int rank, TrainOptions& options) {
      if (rank == 1) change(options);
    };
    for (const auto& result : run.run()) {
      REQUIRE(result.error);
      INFO(result.error->what());
      CHECK(result.error->code() == ExitCode::usage);
      CHECK(std::string(result.error->what())
                .find("rank 1 was asked for another run: " + difference) != std::string::npos);
    }
    CHECK_FALSE(fs::exists(run.dir / "out/checkpoints"));
  };
  refused("learning_rate is 0.02, rank 0 has 0.01",
          [](TrainOptions& o) { o.learning_rate = 0.02; });
  refused("seed is 7, rank 0 has 0", [](TrainOptions& o) { o.seed = 7; });
  refused("eval_every is 2, rank 0 has 0", [](TrainOptions& o) { o.eval_every = 2; });
}

TEST_CASE("one rank's error ends the others with its code") {
  Training run;
  run.world = 3;
  run.stages = 3;
  run.options.out = run.dir / "out";
  run.samples[3].tokens[0] = 5000;  // no such token: the first rank notices
  for (Sample& sample : run.samples) sample.supervised.back() = 1;
  for (const auto& result : run.run()) {
    REQUIRE(result.error);
    CHECK(result.error->code() == ExitCode::usage);
    CHECK(std::string(result.error->what()).find("5000") != std::string::npos);
  }
}

TEST_CASE(
    "an error of one rank's reading thread ends all with its code, and the steps before it stay "
    "saved") {
  Training run;
  run.world = 4;
  run.stages = 2;
  run.options.out = run.dir / "out";
  run.options.save_every = 1;
  const std::uint64_t bad = batch_indices(0, 0, 4, 4, run.samples.size())[2];
  run.on_read = [&](int rank, std::uint64_t index) {
    require(rank != 3 || index != bad, ExitCode::io, "train-00002.h5: cannot be read");
  };
  for (const auto& result : run.run()) {
    REQUIRE(result.error);
    INFO(result.error->what());
    CHECK(result.error->code() == ExitCode::io);
    CHECK(std::string(result.error->what()).find("train-00002.h5: cannot be read") !=
          std::string::npos);
  }
  const auto saved = checkpoints_in(run.dir / "out/checkpoints");
  CHECK_FALSE(saved.empty());
  CHECK(saved.back().first <= 4);
}
