// Memory of the processor that was asked for pinned. It is ordinary memory, since what goes to a card is copied as it is issued; but PyTorch asks
// afterwards whether it got what it wanted, and takes another answer for a mistake.
#include "program/pinned.h"

#include <map>
#include <mutex>

namespace tessera {

struct Pinned final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    c10::DataPtr data = c10::GetAllocator(c10::kCPU)->allocate(bytes);
    if (data.get() == nullptr) return data;
    auto kept = new c10::DataPtr(std::move(data));
    void* start = kept->get();
    std::lock_guard lock(mutex);
    ranges[start] = bytes;
    return {start, kept, &release, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  bool holds(const void* address) {
    std::lock_guard lock(mutex);
    auto after = ranges.upper_bound(address);
    if (after == ranges.begin()) return false;
    auto [start, bytes] = *std::prev(after);
    return address < static_cast<const char*>(start) + bytes;
  }

  static void release(void* context) {
    auto kept = static_cast<c10::DataPtr*>(context);
    {
      std::lock_guard lock(instance().mutex);
      instance().ranges.erase(kept->get());
    }
    delete kept;
  }
  // Never destroyed: tensors may outlive whatever ends with the process.
  static Pinned& instance() {
    static auto pinned = new Pinned;
    return *pinned;
  }

  std::mutex mutex;
  std::map<const void*, size_t> ranges;
};

c10::Allocator* pinned() { return &Pinned::instance(); }
bool is_pinned(const void* address) { return Pinned::instance().holds(address); }

}  // namespace tessera
