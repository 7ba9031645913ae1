// Attention as one operator (attention.cpp).
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

namespace tessera {

// Whether this is the way there, which drops nothing out.
bool is_attention(const c10::OperatorHandle& op);

// Whether this goes back where the way there was made on a device that keeps no sums.
bool lacks_sums(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace tessera
