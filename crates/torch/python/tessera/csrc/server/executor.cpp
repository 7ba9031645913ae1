// Commands of a program, one after the other; compute.cpp runs the operators themselves.
#include "server/group.h"

#include <ATen/Context.h>
#include <ATen/Generator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace tessera {

uint64_t clock_of(clockid_t id) {
  timespec now;
  clock_gettime(id, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}

Executor::Executor(c10::Device device, uint64_t memory_bytes, const Gate* gate, bool gated, int threads)
    : limit(memory_bytes), device_(device), gate_(gate), gated_(gated), threads_(std::max(threads, 1)) {
  paid_cpu_ = clock_of(CLOCK_PROCESS_CPUTIME_ID);
  paid_wall_ = clock_of(CLOCK_MONOTONIC);
}

Executor::~Executor() = default;

bool Executor::serve(const Transport* transport) {
  const uint8_t* bytes;
  size_t length;
  for (;;) {
    int outcome = transport->receive(transport->state, &bytes, &length);
    if (outcome == kEnded) return false;
    if (outcome == kInterrupted) return true;
    TORCH_CHECK(outcome == kDone, transport->error(transport->state));
    Reader frame(reinterpret_cast<const char*>(bytes), length);
    meters.queued = length + transport->waiting(transport->state);
    bool counts = length == 0 || bytes[0] != kUncounted;
    if (counts) answer_.clear(), answer_bulk_ = Tensor();
    // What is told again is answered anew, and leaves what the program has not heard for certain.
    Answered unheard;
    Group::Pending pending;
    if (!counts) unheard = {answer_, answer_bulk_, std::exchange(failure_, std::nullopt)};
    if (!counts && group_) pending = group_->set_aside({});
    broken_ = false;
    // The frame lies in the transport's buffer until the next one is received, which is after all of it was run.
    run_frame(frame, transport);
    if (counts) sequence++;
    else answer_ = std::move(unheard.answer), answer_bulk_ = std::move(unheard.bulk);
    if (unheard.failure) failure_ = std::move(unheard.failure);
    if (!counts && group_) group_->set_aside(pending);
    pay(true);
    meters.queued -= length;
    meters.bytes += length;
    meters.operations = operations;
    meters.held = group_ ? group_->held_here() : held();
    // An answer that does not arrive keeps nothing of its frame from being executed.
    TORCH_CHECK(!broken_, transport->error(transport->state));
    if (group_ && group_->must_end()) throw Lost(group_->lost);
    // As one of several servers it cannot do its part. By itself it tells its program so, for as long as that asks.
    if (!broken_device_.empty() && group_) throw Lost(broken_device_);
    if (snapshot_ || over_) return true;
  }
}

// Waits for its turn.
void Executor::enter() {
  auto began = clock_of(CLOCK_MONOTONIC);
  gate_->enter(gate_->state);
  meters.waited += clock_of(CLOCK_MONOTONIC) - began;
}

// One frame, at each server of a group.
void Executor::run_frame(Reader& frame, const Transport* transport) {
  if (!group_ || frame.done()) return run(frame, transport);
  auto first = static_cast<uint8_t>(*frame.rest());
  if (group_->leads()) {
    TORCH_CHECK(first < kGone || first == kCall, "there is no command ", int(first));
    group_->pass_on(reinterpret_cast<const uint8_t*>(frame.rest()), frame.left());
    return run(frame, transport);
  }
  if (first == kGone) return forget_connection();
  over_ = first == kOver;
  if (over_) return;
  try {
    if (first >= kQuiesce) obey(frame, transport);
    else run(frame, transport);
  } catch (const Lost&) {
    throw;
  } catch (const std::exception&) {
    // What cannot be ends the program's connection at the first server, which says so.
  }
}

// An error that every server of a group finds.
void Executor::note_for_all(std::string_view name) {
  note_exception(name);
  if (group_) group_->failed = true;
}

void Executor::join(Exchange exchange, Servers servers, const std::string& split) {
  group_ = std::make_unique<Group>(*this, std::move(exchange), std::move(servers), split_of(split));
}

void Executor::lead(const Transport* follower) { group_->follow(follower); }

void Executor::tell_followers(Command command) {
  uint8_t frame[] = {command};
  if (group_ && group_->leads()) group_->pass_on(frame, sizeof frame);
}

uint64_t Executor::held() const { return group_ ? group_->held() : used + reserved_; }

// Pays for what was computed. On a processor that is its own time, which neighbours do not stretch; on other devices the time from the first
// operation that is unpaid until the device has finished, looked at once for a few operations, because waiting for each would cost more than most take.
// After `all` of them nothing is left to compute for now.
void Executor::pay(bool all) {
  if (device_.is_cpu()) {
    auto wall = clock_of(CLOCK_MONOTONIC);
    if (!all && wall - paid_wall_ < 50000) return;
    auto cpu = clock_of(CLOCK_PROCESS_CPUTIME_ID);
    gate_->pay(gate_->state, (cpu - paid_cpu_) / threads_, all);
    meters.computed += (cpu - paid_cpu_) / threads_;
    paid_cpu_ = cpu;
    paid_wall_ = wall;
    return;
  }
  if (unpaid_ == 0) {
    if (all && gated_) gate_->pay(gate_->state, 0, true);
    return;
  }
  if (!all && unpaid_ < 16) return;
  wait_for_device();
  auto spent = clock_of(CLOCK_MONOTONIC) - paid_wall_;
  gate_->pay(gate_->state, spent, all);
  meters.computed += spent;
  paid_wall_ += spent;
  unpaid_ = 0;
}

// What the device has found wrong meanwhile is told as an error of the last operation, though it may be of one shortly before. A device that
// cannot even be waited for, as after an assertion in a kernel, computes nothing more for this process.
void Executor::wait_for_device() {
  try {
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  } catch (const std::exception& error) {
    note_exception(kWaiting);
    std::string why = error.what();
    broken_device_ = c10::str("device ", device_, " computes no more: ", why.substr(0, why.find('\n')));
  }
}

void Executor::note(Status status, std::string_view name, const std::string& text) {
  if (!failure_) failure_ = Failure{status, operations, std::string(name), text.substr(0, 4000)};
}

// To be called while an exception is being handled: finds the kind of error that the program is to see.
void Executor::note_exception(std::string_view name) {
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
  if (group_) {
    together([&] { if (group_->lost.empty()) group_->settle(); });
    if (group_->must_end()) throw Lost(group_->lost);
    if (!group_->leads()) {
      answer_ = "given by the first server";
      return failure_.reset();
    }
    if (!group_->lost.empty()) failure_ = Failure{kRuntime, operations, std::string(kWaiting), group_->lost};
  }
  if (!failure_ && !broken_device_.empty()) failure_ = Failure{kRuntime, operations, std::string(kWaiting), broken_device_};
  if (failure_) bulk = Tensor();
  Bytes answer;
  put<uint8_t>(answer, failure_ ? failure_->status : kFine);
  put(answer, sequence);
  if (failure_) {
    put_failure(answer, *failure_);
    failure_.reset();
  } else {
    answer += body;
  }
  answer_ = std::move(answer);
  answer_bulk_ = std::move(bulk);
  meters.bytes += answer_.size() + (answer_bulk_.defined() ? answer_bulk_.nbytes() : 0);
  tell(transport);
}

// Sends the last answer.
void Executor::tell(const Transport* transport) {
  broken_ |= transport->send(transport->state, reinterpret_cast<const uint8_t*>(answer_.data()), answer_.size()) != kDone;
  if (broken_ || !answer_bulk_.defined()) return;
  auto* bytes = static_cast<const uint8_t*>(answer_bulk_.const_data_ptr());
  broken_ |= transport->bulk_send(transport->state, bytes, answer_bulk_.nbytes()) != kDone;
}

void Executor::watch(const Transport* transport, bool on) {
  // What a server of the group has begun last, it has done, or the program learns that it has not.
  if (group_ && watched_ && !on) together([&] { if (group_->lost.empty()) group_->meet(); });
  watched_ = on;
  watcher_ = on && (!group_ || group_->leads()) ? transport : nullptr;
  if (!on) reply(transport, {});
}

// Before an operation is executed. If it ends this process, the program knows which one it was.
void Executor::announce() {
  if (watcher_) {
    Bytes said;
    put<uint8_t>(said, kAnnounced);
    put(said, operations);
    broken_ |= watcher_->send(watcher_->state, reinterpret_cast<const uint8_t*>(said.data()), said.size()) != kDone;
  }
  TORCH_CHECK(!condemned_.count(operations), "the slice servers that executed this operation ended by it, one after the other: it is not ",
              "executed again. It may need more memory than the host of the slice has, or be a fault of PyTorch");
}

static at::Generator generator(c10::Device device) { return at::globalContext().defaultGenerator(device); }

void Executor::run(Reader& frame, const Transport* transport) {
  paid_wall_ = clock_of(CLOCK_MONOTONIC);
  if (group_) group_->go_on();
  while (!frame.done()) {
    auto command = frame.get<uint8_t>();
    switch (command) {
      case kDefine: define(frame); continue;
      case kExecute: execute(frame, false, transport); continue;
      case kExecuteNow: execute(frame, true, transport); continue;
      case kFree: forget(frame.get<uint64_t>()); continue;
      case kDrop: templates_.erase(frame.get<uint32_t>()); continue;
      case kWrite: write(frame, transport); continue;
      case kRead: read(frame, transport); continue;
      case kReplay: replay(frame.get<uint32_t>()); continue;
      case kCall: call_graph(frame); continue;
      case kSynchronize: reply(transport, {}); continue;
      case kUncounted: continue;
      default: break;
    }
    if (command == kStatus) {
      Bytes body;
      if (group_) group_->describe(body, about);
      else for (uint64_t number : {held(), peak, limit, operations, uint64_t(storages_.size())}) put(body, number);
      reply(transport, body);
    } else if (command == kRecord) {
      record(frame, transport);
    } else if (command == kBegin) {
      begin_program();
    } else if (command == kRepeat) {
      if (group_ && !group_->leads()) continue;  // after it was restored it has none
      TORCH_CHECK(!answer_.empty(), "there is no answer to repeat");
      tell(transport);
    } else if (command == kWatch) {
      watch(transport, frame.get<uint8_t>() != 0);
    } else if (command == kCondemn) {
      TORCH_CHECK(condemned_.size() < kMostCondemned, "more than ", kMostCondemned, " operations that are not to be executed");
      condemned_.insert(frame.get<uint64_t>());
    } else if (command == kForget) {
      forget_graph(frame.get<uint32_t>());
    } else if (command == kSnapshot) {
      auto name = frame.text();
      // Taken when this frame is done. The others of a group are told what their part in it is.
      if (!group_ || group_->leads()) snapshot_ = name;
    } else if (command == kAllocate || command == kResize) {
      auto id = frame.get<uint64_t>(), bytes = frame.get<uint64_t>();
      allocate_or_resize(command == kResize, id, bytes);
    } else if (command == kSeed) {
      auto seeded = generator(device_);
      seeded.set_current_seed(frame.get<uint64_t>());
      if (group_) group_->seeded();
    } else if (command == kSetRandom) {
      auto text = frame.text();
      auto state = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
      std::memcpy(state.mutable_data_ptr(), text.data(), text.size());
      try {
        if (group_) group_->seeded();
        if (!group_ || group_->has_random()) set_random_state(state);
      } catch (...) {
        note_exception("set_rng_state");
      }
    } else if (command == kGetRandom) {
      if (group_) together([&] { if (group_->lost.empty()) group_->random_at(1); });
      auto state = random_state();
      reply(transport, Bytes(static_cast<const char*>(state.const_data_ptr()), state.nbytes()));
    } else {
      TORCH_CHECK(false, "there is no command ", int(command));
    }
  }
}

Tensor Executor::random_state() const { return generator(device_).get_state(); }

// A program keeps states of its generators while its card moves. Another kind of device draws other numbers, whatever it is told: they
// follow from what was drawn, and repeat nothing of it.
static bool is_of_another_kind(const Tensor& state, size_t own) {
  static constexpr std::array kinds{size_t(5056), size_t(16)};  // bytes of a processor's, and of those of GPUs and NPUs
  return state.nbytes() != own && std::find(kinds.begin(), kinds.end(), state.nbytes()) != kinds.end();
}

void Executor::set_random_state(const Tensor& state) {
  auto set = generator(device_);
  if (!is_of_another_kind(state, random_state().nbytes())) return set.set_state(state);
  uint64_t seed = 14695981039346656037u;  // FNV-1a
  auto* bytes = static_cast<const uint8_t*>(state.const_data_ptr());
  for (size_t i = 0; i < state.nbytes(); i++) seed = (seed ^ bytes[i]) * 1099511628211u;
  set.set_current_seed(seed);
}

void Executor::answer_snapshot(const Transport* transport, const std::string& error) {
  tell_followers(kAnswer);
  if (!error.empty()) note(kRuntime, kSaving, error);
  reply(transport, {});
}

// The program is gone, or comes again and tells once more what it has told.
void Executor::forget_connection() {
  snapshot_.reset();
  meters.queued = 0;
  graphs_.clear();
  graph_bytes_ = reserved_ = 0;
  templates_.clear();
  watched_ = false;
  watcher_ = nullptr;
  condemned_.clear();
}

void Executor::begin_program() {
  // What was said about its operations, before it was told again that it begins, stands.
  auto condemned = std::move(condemned_);
  auto* watcher = watcher_;
  bool watched = watched_;
  forget_connection();
  condemned_ = std::move(condemned);
  watcher_ = watcher;
  watched_ = watched;
  failure_.reset();
  storages_.clear();
  used = peak = 0;
  if (group_) group_->clear();
}

Bytes Executor::failure_text() const {
  Bytes text;
  put<uint8_t>(text, failure_->status);
  put_failure(text, *failure_);
  return text;
}

void Executor::set_failure_text(const Bytes& text) {
  Reader from(text);
  failure_ = read_failure(from);
}

Bytes Executor::untold() const {
  Bytes text;
  put<uint8_t>(text, failure_.has_value());
  if (failure_) text += failure_text();
  put_text(text, answer_);
  return text;
}

void Executor::set_untold(const Bytes& text) {
  Reader from(text);
  if (from.get<uint8_t>()) failure_ = read_failure(from);
  answer_ = from.text();
}

}  // namespace tessera
