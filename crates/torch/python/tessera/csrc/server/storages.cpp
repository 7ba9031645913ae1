// Storages of a slice: allocated and counted, written by the program and read by it.
#include <ATen/ops/empty.h>

#include "server/group.h"

namespace tessera {

void Executor::ask_for(uint64_t bytes) {
  // What graphs need is kept for them, and is there for the one that is replayed.
  uint64_t taken = used + (replaying_ ? 0 : reserved_);
  if (bytes <= limit && taken <= limit - bytes) return;
  throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__},
                              c10::str("over the memory of the slice: ", bytes, " bytes asked for, ", taken, " of ", limit, " in use"));
}

Tensor Executor::allocate(uint64_t bytes) {
  ask_for(bytes);
  TORCH_CHECK(storages_.size() < kMostStorages, "more than ", kMostStorages, " storages");
  return at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte).device(device_));
}

void Executor::keep(uint64_t id, c10::Storage storage) {
  TORCH_CHECK(!storages_.count(id), "storage ", id, " is there already");
  auto bytes = storage.nbytes();
  used += bytes;
  peak = std::max(peak, used);
  storages_.emplace(id, Held{std::move(storage), bytes});
}

void Executor::drop(uint64_t id) {
  auto found = storages_.find(id);
  if (found == storages_.end()) return;
  used -= found->second.bytes;
  storages_.erase(found);
}

Tensor bytes_of(const c10::Storage& storage, int64_t begin, int64_t length, c10::Device device) {
  auto key = c10::computeDispatchKey(at::kByte, c10::kStrided, device);
  return make_tensor(storage, c10::DispatchKeySet(key), at::kByte, {length}, {1}, begin);
}

Tensor Executor::tensor(uint64_t id, const Layout& layout) const {
  auto found = storages_.find(id);
  TORCH_CHECK(found != storages_.end(), "a tensor is lost because of an earlier error");
  TORCH_CHECK(reach(layout) <= found->second.storage.nbytes(), "a tensor is outside its storage");
  auto key = c10::computeDispatchKey(layout.type, c10::kStrided, device_);
  return make_tensor(found->second.storage, c10::DispatchKeySet(key), layout.type, layout.sizes, layout.strides, layout.offset);
}

void Executor::write(Reader& frame, const Transport* transport) {
  auto id = frame.get<uint64_t>();
  auto layout = read_layout(frame);
  auto bytes = frame.get<uint64_t>();
  bool bulk = frame.get<uint8_t>() != 0;
  TORCH_CHECK(bytes <= (group_ ? group_->memory() : limit), "more is written than the slice has memory");
  const char* there = bulk ? nullptr : frame.take(bytes);
  Tensor to, host;
  try {
    if (group_) {
      TORCH_CHECK(bytes == extent(layout), "as many bytes must be written as the tensor has");
    } else {
      to = tensor(id, layout);
      TORCH_CHECK(to.nbytes() == bytes, "as many bytes must be written as the tensor has");
      // Straight to where it belongs when it lies there in one piece.
      if (to.is_cpu() && to.is_contiguous()) host = to;
    }
  } catch (...) {
    note_for_all("write");
    to = Tensor();
  }
  if (!host.defined()) host = at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte));
  int outcome = kDone;
  // Taken off the connection in any case: what follows it must be found. It comes to the first server of a group only.
  if (bulk) meters.bytes += bytes;
  if (bulk && (!group_ || group_->leads())) outcome = transport->bulk_receive(transport->state, static_cast<uint8_t*>(host.mutable_data_ptr()), bytes);
  else if (!bulk && bytes) std::memcpy(host.mutable_data_ptr(), there, bytes);
  if (group_ && !group_->failed && group_->lost.empty()) {
    together([&] {
      try {
        group_->write(id, layout, host, bulk);
      } catch (const Lost&) {
        throw;
      } catch (...) {
        note_for_all("write");
        group_->lose(id);
      }
    });
  }
  TORCH_CHECK(outcome == kDone, transport->error(transport->state));
  try {
    if (to.defined() && !host.is_same(to)) to.copy_(host.view(to.scalar_type()).view(to.sizes()));
  } catch (...) {
    note_for_all("write");  // such as one whose elements share their places
  }
}

void Executor::read(Reader& frame, const Transport* transport) {
  auto id = frame.get<uint64_t>();
  auto layout = read_layout(frame);
  Tensor from;
  auto look = [&] {
    try {
      if (!group_) {
        if (!failure_) from = tensor(id, layout).contiguous().cpu();
      } else if (group_->lost.empty()) {
        if (!group_->failed && !group_->is_at_hand(id)) group_->ask_all();
        if (!group_->settle()) from = group_->read(id, layout);
      }
    } catch (const Lost&) {
      throw;
    } catch (...) {
      note_exception(kReading);
    }
  };
  if (group_) together(look);
  else look();
  bool fine = !failure_ && from.defined(), bulk = fine && from.nbytes() > kInline;
  Bytes body;
  if (fine) {
    put<uint8_t>(body, bulk);
    if (!bulk) body.append(static_cast<const char*>(from.const_data_ptr()), from.nbytes());
  }
  reply(transport, body, bulk ? from : Tensor());
}

void Executor::resize(uint64_t id, uint64_t bytes) {
  auto found = storages_.find(id);
  TORCH_CHECK(found != storages_.end(), "a tensor is lost because of an earlier error");
  auto larger = allocate(bytes);
  auto both = std::min<int64_t>(bytes, found->second.bytes);
  auto old = make_tensor(found->second.storage, larger.key_set(), at::kByte, {both}, {1}, 0);
  larger.narrow(0, 0, both).copy_(old);
  // Views are made anew for each operation, so that none holds on to the old one.
  drop(id);
  keep(id, larger.storage());
}

// Of a storage that the program lets go of.
void Executor::forget(uint64_t id) {
  if (group_) group_->drop(id);
  else drop(id);
}

void Executor::allocate_or_resize(bool grows, uint64_t id, uint64_t bytes) {
  try {
    if (!group_ && grows) resize(id, bytes);
    else if (!group_) keep(id, allocate(bytes).storage());
    else if (group_->failed || !group_->lost.empty()) return;
    else if (grows) together([&] { group_->resize(id, bytes); });
    else group_->made(id, bytes);
  } catch (const Lost&) {
    throw;
  } catch (...) {
    note_for_all("allocate");
  }
}

}  // namespace tessera
