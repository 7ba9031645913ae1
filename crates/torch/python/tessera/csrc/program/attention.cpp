// Attention as one operator.
//
// PyTorch composes attention of many operators for devices that say nothing, and keeps what is between them: a number for each pair of
// words. So a program issues it whole where a processor would compute it whole, and by the name that it has there, the only one whose
// results follow from shapes alone. A slice on another device computes it all the same (server/attention.cpp). What is dropped out
// is composed as before: each kernel draws random numbers of its own.
#include "program/attention.h"

#include <ATen/Context.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>

namespace tessera {

using at::Tensor;

// A processor's kernel for this looks at shapes and not at what lies there. Whoever allows only kernels that it does not have, as is usual on
// GPUs, has it composed.
static int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask, double dropout, bool is_causal,
                      std::optional<double> scale, bool is_grouped) {
  auto& allowed = at::globalContext();
  if (!allowed.userEnabledFlashSDP() && !allowed.userEnabledMathSDP()) return static_cast<int64_t>(at::SDPBackend::math);
  c10::DispatchKeySet processor(c10::DispatchKey::CPU);
  return at::_ops::_fused_sdp_choice::redispatch(processor, query, key, value, mask, dropout, is_causal, scale, is_grouped);
}

// For programs: a server's device may be of the same kind to PyTorch, and have a choice of its own.
void install_attention() { at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose); }

}  // namespace tessera
