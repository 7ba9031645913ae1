// Attention that a program issues as one operator (program/attention.cpp), on whatever device the slice is of: computed with the kernel that
// its own PyTorch has, and made once more on the way back.
#include "server/attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/any.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <cmath>

namespace tessera {

using at::Tensor;
using Mask = std::optional<Tensor>;

// Not every kernel of every device takes keys that several heads share, or a mask of another type: without one all pairs would be kept.
static Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, double dropout, bool is_causal, const Mask& mask,
                     std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(dropout == 0, "attention with dropout is composed");
  auto of_each_head = [&](const Tensor& of) {
    if (of.size(1) == query.size(1)) return of;
    TORCH_CHECK(of.size(1) > 0 && query.size(1) % of.size(1) == 0, query.size(1), " heads cannot share ", of.size(1));
    return of.repeat_interleave(query.size(1) / of.size(1), 1);
  };
  Mask alike = mask;
  if (mask && mask->is_floating_point()) alike = mask->to(query.scalar_type());
  return at::scaled_dot_product_attention(query, of_each_head(key), of_each_head(value), alike, dropout, is_causal, scale);
}

// The sums that a processor's kernel gives beside are not there: whoever goes back makes the way once more.
static std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value, double dropout, bool is_causal,
                                          const Mask& mask, std::optional<double> scale) {
  auto out = attend(query, key, value, dropout, is_causal, mask, scale);
  auto type = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  auto sums = at::full({query.size(0), query.size(2), query.size(1)}, NAN, query.options().dtype(type)).transpose(1, 2);
  return {out, sums};
}

static std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value,
                                                   const Tensor&, const Tensor&, double dropout, bool is_causal, const Mask& mask,
                                                   std::optional<double> scale) {
  // The engine of gradients takes Python's lock itself where it needs it.
  std::optional<pybind11::gil_scoped_release> without_lock;
  if (PyGILState_Check()) without_lock.emplace();
  auto now = c10::impl::tls_local_dispatch_key_set();
  c10::impl::ForceDispatchKeyGuard with_gradients(now.included_, now.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  at::AutoGradMode on(true);
  std::vector<Tensor> inputs;
  for (auto* input : {&query, &key, &value}) inputs.push_back(input->detach().requires_grad_());
  auto out = attend(inputs[0], inputs[1], inputs[2], dropout, is_causal, mask, scale);
  auto gradients = torch::autograd::grad({out}, inputs, {gradient.detach()});
  return {gradients[0], gradients[1], gradients[2]};
}

// PyTorch counts it among those that draw random numbers, for the sake of what is dropped out.
bool is_attention(const c10::OperatorHandle& op) {
  static auto known = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_scaled_dot_product_flash_attention_for_cpu", "");
  return op == known;
}

// The card may have moved to a processor since then, whose own kernel would make of these sums whatever comes. Samples are looked at each by
// itself, because those of a divided batch come from several devices.
bool lacks_sums(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  static auto back = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_scaled_dot_product_flash_attention_for_cpu_backward", "");
  if (!(op == back)) return false;
  auto& sums = stack[5].toTensor();
  if (!sums.is_cpu() || sums.dim() != 3 || sums.numel() == 0) return false;
  return sums.select(2, 0).select(1, 0).isnan().any().item<bool>();
}

// Of devices that have no kernel of this name.
TORCH_LIBRARY_IMPL(aten, CompositeExplicitAutograd, m) {
  m.impl("_scaled_dot_product_flash_attention_for_cpu", TORCH_FN(forward));
  m.impl("_scaled_dot_product_flash_attention_for_cpu_backward", TORCH_FN(backward));
}

}  // namespace tessera
