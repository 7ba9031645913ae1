// Commands of a program, one after the other; compute.cpp runs the operators themselves.
#include "executor.h"

#include <ATen/Context.h>
#include <ATen/Generator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <time.h>

namespace tessera {

static uint64_t clock_of(clockid_t id) {
  timespec now;
  clock_gettime(id, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

Executor::Executor(c10::Device device, uint64_t memory_bytes, const Gate* gate, bool gated, int threads)
    : limit(memory_bytes), device_(device), gate_(gate), gated_(gated), threads_(std::max(threads, 1)) {
  paid_cpu_ = clock_of(CLOCK_PROCESS_CPUTIME_ID);
  paid_wall_ = clock_of(CLOCK_MONOTONIC);
}

bool Executor::serve(const Transport* transport) {
  const uint8_t* bytes;
  size_t length;
  for (;;) {
    int outcome = transport->receive(transport->state, &bytes, &length);
    if (outcome == kEnded) return false;
    if (outcome == kInterrupted) return true;
    TORCH_CHECK(outcome == kDone, transport->error(transport->state));
    Reader frame(reinterpret_cast<const char*>(bytes), length);
    bool counts = length == 0 || bytes[0] != kUncounted;
    if (counts) answer_.clear(), answer_bulk_ = Tensor();
    broken_ = false;
    // The frame lies in the transport's buffer until the next one is received, which is after all of it was run.
    run(frame, transport);
    if (counts) sequence++;
    pay(true);
    // An answer that does not arrive keeps nothing of its frame from being executed.
    TORCH_CHECK(!broken_, transport->error(transport->state));
    if (snapshot_) return true;
  }
}

// Pays for what was computed. On a processor that is its own time, which neighbours do not stretch; on other devices the time until
// the device has finished, looked at once for a few operations, because waiting for each would cost more than most take.
void Executor::pay(bool all) {
  if (device_.is_cpu()) {
    auto wall = clock_of(CLOCK_MONOTONIC);
    if (!all && wall - paid_wall_ < 50000) return;
    auto cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
    gate_->pay(gate_->state, (cpu - paid_cpu_) / threads_);
    paid_cpu_ = cpu;
    paid_wall_ = wall;
    return;
  }
  if (unpaid_ == 0 || (!all && unpaid_ < 16)) return;
  c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  gate_->pay(gate_->state, clock_of(CLOCK_MONOTONIC) - paid_wall_);
  unpaid_ = 0;
}

void Executor::note(Status status, const std::string& name, const std::string& text) {
  if (!failure_) failure_ = Failure{status, operations, name, text.substr(0, 4000)};
}

// To be called while an exception is being handled: finds the kind of error that the program is to see.
void Executor::note_exception(const std::string& name) {
  try {
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    note(kMemory, name, error.what_without_backtrace());
  } catch (const c10::NotImplementedError& error) {
    note(kNotImplemented, name, error.what_without_backtrace());
  } catch (const c10::IndexError& error) {
    note(kIndex, name, error.what_without_backtrace());
  } catch (const c10::ValueError& error) {
    note(kValue, name, error.what_without_backtrace());
  } catch (const c10::TypeError& error) {
    note(kType, name, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    note(kRuntime, name, error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    note(kMemory, name, "the host of the slice has no memory left");
  } catch (const std::exception& error) {
    note(kRuntime, name, error.what());
  } catch (...) {
    note(kRuntime, name, "an error of an unknown kind");
  }
}

void Executor::reply(const Transport* transport, const Bytes& body, Tensor bulk) {
  pay(true);
  Bytes answer;
  put<uint8_t>(answer, failure_ ? failure_->status : kFine);
  put(answer, sequence);
  if (failure_) {
    put(answer, failure_->operation);
    put(answer, failure_->graph);
    put(answer, failure_->step);
    put_text(answer, failure_->name);
    put_text(answer, failure_->text);
    failure_.reset();
  } else {
    answer += body;
  }
  answer_ = std::move(answer);
  answer_bulk_ = std::move(bulk);
  tell(transport);
}

// Sends the last answer.
void Executor::tell(const Transport* transport) {
  broken_ |= transport->send(transport->state, reinterpret_cast<const uint8_t*>(answer_.data()), answer_.size()) != kDone;
  if (broken_ || !answer_bulk_.defined()) return;
  auto* bytes = static_cast<const uint8_t*>(answer_bulk_.const_data_ptr());
  broken_ |= transport->bulk_send(transport->state, bytes, answer_bulk_.nbytes()) != kDone;
}

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

Tensor Executor::tensor(uint64_t id, const Layout& layout) const {
  auto found = storages_.find(id);
  TORCH_CHECK(found != storages_.end(), "a tensor is lost because of an earlier error");
  TORCH_CHECK(reach(layout) <= found->second.storage.nbytes(), "a tensor is outside its storage");
  auto key = c10::computeDispatchKey(layout.type, c10::kStrided, device_);
  return make_tensor(found->second.storage, c10::DispatchKeySet(key), layout.type, layout.sizes, layout.strides, layout.offset);
}

void Executor::write(Reader& frame, const Transport* transport) {
  auto id = frame.get<uint64_t>();
  Layout layout;
  read_layout(frame, layout);
  auto bytes = frame.get<uint64_t>();
  bool bulk = frame.get<uint8_t>() != 0;
  TORCH_CHECK(bytes <= limit, "more is written than the slice has memory");
  const char* there = bulk ? nullptr : frame.take(bytes);
  Tensor to, host;
  try {
    to = tensor(id, layout);
    TORCH_CHECK(to.nbytes() == bytes, "as many bytes must be written as the tensor has");
    // Straight to where it belongs when it lies there in one piece.
    if (to.is_cpu() && to.is_contiguous()) host = to;
  } catch (...) {
    note_exception("write");
    to = Tensor();
  }
  if (!host.defined()) host = at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte));
  if (bulk) {
    // Taken off the connection in any case: what follows it must be found.
    int outcome = transport->bulk_receive(transport->state, static_cast<uint8_t*>(host.mutable_data_ptr()), bytes);
    TORCH_CHECK(outcome == kDone, transport->error(transport->state));
  } else if (bytes) {
    std::memcpy(host.mutable_data_ptr(), there, bytes);
  }
  if (to.defined() && !host.is_same(to)) to.copy_(host.view(to.scalar_type()).view(to.sizes()));
}

void Executor::read(Reader& frame, const Transport* transport) {
  auto id = frame.get<uint64_t>();
  Layout layout;
  read_layout(frame, layout);
  Tensor from;
  if (!failure_) {
    try {
      from = tensor(id, layout).contiguous().cpu();
    } catch (...) {
      note_exception("read");
    }
  }
  bool fine = !failure_, bulk = fine && from.nbytes() > kInline;
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

static at::Generator generator(c10::Device device) { return at::globalContext().defaultGenerator(device); }

void Executor::run(Reader& frame, const Transport* transport) {
  paid_wall_ = clock_of(CLOCK_MONOTONIC);
  while (!frame.done()) {
    auto command = frame.get<uint8_t>();
    switch (command) {
      case kDefine: define(frame); continue;
      case kExecute: execute(frame, false, transport); continue;
      case kExecuteNow: execute(frame, true, transport); continue;
      case kFree: drop(frame.get<uint64_t>()); continue;
      case kDrop: templates_.erase(frame.get<uint32_t>()); continue;
      case kWrite: write(frame, transport); continue;
      case kRead: read(frame, transport); continue;
      case kReplay: replay(frame.get<uint32_t>()); continue;
      case kSynchronize: reply(transport, {}); continue;
      case kUncounted: continue;
      default: break;
    }
    if (command == kStatus) {
      Bytes body;
      for (uint64_t number : {held(), peak, limit, operations, uint64_t(storages_.size())}) put(body, number);
      reply(transport, body);
    } else if (command == kRecord) {
      record(frame, transport);
    } else if (command == kBegin) {
      begin_program();
    } else if (command == kRepeat) {
      TORCH_CHECK(!answer_.empty(), "there is no answer to repeat");
      tell(transport);
    } else if (command == kForget) {
      forget_graph(frame.get<uint32_t>());
    } else if (command == kSnapshot) {
      snapshot_ = frame.text();  // taken when this frame is done
    } else if (command == kAllocate || command == kResize) {
      auto id = frame.get<uint64_t>(), bytes = frame.get<uint64_t>();
      try {
        if (command == kResize) resize(id, bytes);
        else keep(id, allocate(bytes).storage());
      } catch (...) {
        note_exception("allocate");
      }
    } else if (command == kSeed) {
      auto seeded = generator(device_);
      seeded.set_current_seed(frame.get<uint64_t>());
    } else if (command == kSetRandom) {
      auto text = frame.text();
      auto state = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
      std::memcpy(state.mutable_data_ptr(), text.data(), text.size());
      try {
        auto set = generator(device_);
        set.set_state(state);
      } catch (...) {
        note_exception("set_rng_state");
      }
    } else if (command == kGetRandom) {
      auto state = generator(device_).get_state();
      reply(transport, Bytes(static_cast<const char*>(state.const_data_ptr()), state.nbytes()));
    } else {
      TORCH_CHECK(false, "there is no command ", int(command));
    }
  }
}

void Executor::answer_snapshot(const Transport* transport, const std::string& error) {
  if (!error.empty()) note(kRuntime, "snapshot", error);
  reply(transport, {});
}

std::vector<std::pair<uint64_t, Tensor>> Executor::storages() const {
  std::vector<std::pair<uint64_t, Tensor>> all;
  for (auto& [id, held] : storages_) {
    auto key = c10::computeDispatchKey(at::kByte, c10::kStrided, device_);
    all.emplace_back(id, make_tensor(held.storage, c10::DispatchKeySet(key), at::kByte, {int64_t(held.bytes)}, {1}, 0));
  }
  return all;
}

void Executor::load(uint64_t id, const Tensor& bytes) {
  auto to = allocate(bytes.nbytes());
  to.copy_(bytes);
  keep(id, to.storage());
}

// The program is gone, or comes again and tells once more what it has told.
void Executor::forget_connection() {
  snapshot_.reset();
  graphs_.clear();
  graph_bytes_ = reserved_ = 0;
  templates_.clear();
}

void Executor::begin_program() {
  forget_connection();
  failure_.reset();
  storages_.clear();
  used = peak = 0;
}

Bytes Executor::untold() const {
  Bytes text;
  put<uint8_t>(text, failure_.has_value());
  if (failure_) {
    put<uint8_t>(text, failure_->status);
    put(text, failure_->operation);
    put(text, failure_->graph);
    put(text, failure_->step);
    put_text(text, failure_->name);
    put_text(text, failure_->text);
  }
  put_text(text, answer_);
  return text;
}

void Executor::set_untold(const Bytes& text) {
  Reader from(text);
  if (from.get<uint8_t>()) {
    failure_ = Failure{static_cast<Status>(from.get<uint8_t>()), from.get<uint64_t>()};
    failure_->graph = from.get<uint32_t>();
    failure_->step = from.get<uint32_t>();
    failure_->name = from.text();
    failure_->text = from.text();
  }
  answer_ = from.text();
}

}  // namespace tessera
