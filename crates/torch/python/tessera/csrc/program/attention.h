// Attention as one operator (attention.cpp).
#pragma once

namespace tessera {

// Has programs issue it as one operator.
void install_attention();

}  // namespace tessera
