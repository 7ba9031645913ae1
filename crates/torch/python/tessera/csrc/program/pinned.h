// Memory of the processor that was asked for pinned.
#pragma once

#include <c10/core/Allocator.h>

namespace tessera {

c10::Allocator* pinned();
bool is_pinned(const void* address);

}  // namespace tessera
