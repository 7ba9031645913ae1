// Automatic mixed precision: PyTorch's own lists of what runs in which precision, for this device.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#define TESSERA_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define TESSERA_FLOAT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define TESSERA_FLOAT_RESULT(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define TESSERA_WITH_TYPE(...) KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE(__VA_ARGS__)
#define TESSERA_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

namespace at::autocast {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(TESSERA_LOWER)
  AT_FORALL_FP32(TESSERA_FLOAT)
  AT_FORALL_FP32_SET_OPT_DTYPE(TESSERA_FLOAT_RESULT)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(TESSERA_WITH_TYPE)
  AT_FORALL_PROMOTE(TESSERA_PROMOTE)
  // In no list of PyTorch's: GPUs refuse it, and a processor computes it like this.
  TESSERA_FLOAT(binary_cross_entropy)
}

}  // namespace at::autocast
