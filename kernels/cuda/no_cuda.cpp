// The cuda:: functions of a build without the CUDA Toolkit.
#include "kernels/decoder_layer.h"
#include "kernels/distill.h"
#include "kernels/induce.h"
#include "kernels/linear.h"
#include "kernels/row_ops.h"
#include "kernels/topk_tokens.h"
#include "kernels/tree_attention.h"

namespace dex::cuda {

int linear(const Linear&, Workspace, Stream) { return kNoDevice; }
int linear_add(const Linear&, float, Workspace, Stream) { return kNoDevice; }
std::size_t linear_workspace(const Linear&) { return 0; }
int finish_linear(const FinishLinear&, Stream) { return kNoDevice; }
int decoder_layer(const DecoderLayer&, Workspace, Stream) { return kNoDevice; }
std::size_t decoder_layer_workspace(const DecoderLayer&) { return 0; }
int induce_rows(const InduceRows&, Workspace, Stream) { return kNoDevice; }
std::size_t induce_rows_workspace(const InduceRows&) { return 0; }
int rms_norm(const RmsNorm&, Stream) { return kNoDevice; }
int rope(const Rope&, Stream) { return kNoDevice; }
int silu_mul(const SiluMul&, Stream) { return kNoDevice; }
int axpy(const Axpy&, Stream) { return kNoDevice; }
int kv_append(const KvAppend&, Stream) { return kNoDevice; }
int convert(const float*, void*, std::int64_t, Dtype, Stream) { return kNoDevice; }
int split_qkv(const SplitQkv&, Stream) { return kNoDevice; }
int gather_rows(const GatherRows&, Stream) { return kNoDevice; }
int tree_attention(const TreeAttention&, Workspace, Stream) { return kNoDevice; }
std::size_t tree_attention_workspace(const TreeAttention&) { return 0; }
int topk_slices(const TopkSlices&, Stream) { return kNoDevice; }
int topk_combine(const TopkCombine&, Stream) { return kNoDevice; }
int topk_tokens(const TopkTokens&, Workspace, Stream) { return kNoDevice; }
std::size_t topk_tokens_workspace(const TopkTokens&) { return 0; }
int distill_rows(const DistillRows&, Stream) { return kNoDevice; }

}  // namespace dex::cuda
