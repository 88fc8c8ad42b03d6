// The cuda:: functions of a build without the CUDA Toolkit.
#include "kernels/decoder_layer.h"
#include "kernels/distill.h"
#include "kernels/induce.h"
#include "kernels/linear.h"
#include "kernels/rank_tokens.h"
#include "kernels/row_ops.h"
#include "kernels/tree_attention.h"

namespace dex::cuda {

int linear(const Linear&, Scratch, Stream) { return kNoDevice; }
int linear_add(const Linear&, float, Scratch, Stream) { return kNoDevice; }
std::size_t linear_scratch(const Linear&) { return 0; }
int decoder_layer(const DecoderLayer&, Scratch, Stream) { return kNoDevice; }
std::size_t decoder_layer_scratch(const DecoderLayer&) { return 0; }
int induce_rows(const InduceRows&, Scratch, Stream) { return kNoDevice; }
std::size_t induce_rows_scratch(const InduceRows&) { return 0; }
int rms_norm(const RmsNorm&, Stream) { return kNoDevice; }
int rope(const Rope&, Stream) { return kNoDevice; }
int silu_multiply(const SiluMultiply&, Stream) { return kNoDevice; }
int add_scaled(const AddScaled&, Stream) { return kNoDevice; }
int kv_append(const KvAppend&, Stream) { return kNoDevice; }
int convert(const float*, void*, std::int64_t, Dtype, Stream) { return kNoDevice; }
int split_qkv(const SplitQkv&, Stream) { return kNoDevice; }
int gather_rows(const GatherRows&, Stream) { return kNoDevice; }
int tree_attention(const TreeAttention&, Scratch, Stream) { return kNoDevice; }
std::size_t tree_attention_scratch(const TreeAttention&) { return 0; }
int rank_tokens(const RankTokens&, Scratch, Stream) { return kNoDevice; }
std::size_t rank_tokens_scratch(const RankTokens&) { return 0; }
int distill_rows(const DistillRows&, Stream) { return kNoDevice; }

}  // namespace dex::cuda
