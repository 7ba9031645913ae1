// Queueing, waiting, accounting.
#include "program/client.h"
#include "program/waiting.h"

#include <sys/mman.h>
#include <time.h>

#include <chrono>
#include <thread>

namespace tessera {

constexpr size_t kSpan = 1ull << 44;     // of addresses that nothing lies behind
constexpr size_t kApart = 512;           // between those of two storages
constexpr uint64_t kOld = 200'000;       // nanoseconds that the tail of a batch waits at most
constexpr size_t kFullQueue = 256 << 10; // bytes
constexpr size_t kLarge = 1 << 20;       // bytes that are free again

static uint64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ull + time.tv_nsec;
}

Client& client() {
  // Never destroyed: tensors outlive static objects.
  static auto* one = new Client;
  return *one;
}

Client::Lock::Lock(Client& client) : client_(client) {
  TORCH_CHECK(!client.forked_, "a virtual card cannot be used in a forked process: its connection belongs to the parent; start the ",
              "process with the method 'spawn'");
  if (client.mutex_.try_lock()) return;
  WithoutPython without;
  client.mutex_.lock();
}

Client::Use::Use(Client& client) : Lock(client) {
  if (!client.connected() && client.connector_) client.connector_();
}

// In a process that was just forked. What is connected belongs to the parent; a process that was forked earlier has a device of its
// own. Threads that held a lock are not there any more.
void Client::after_fork() {
  if (connected()) forked_ = true;
  new (&mutex_) std::recursive_mutex;
  new (&dead_mutex_) std::mutex;
}

// Before anything is connected a seed is only kept: seeding alone is no use of the card.
void Client::seed(uint64_t seed) {
  Lock lock(*this);
  if (!connected()) {
    seed_ = seed;
    return;
  }
  not_in_graph("it sets the seed of the random numbers, and each replay would draw the same ones");
  put<uint8_t>(queue_, kSeed);
  put(queue_, seed);
  queued();
}

void Client::connect(const Transport* transport, uint64_t memory_bytes, uint64_t sequence, bool fresh) {
  Lock lock(*this);
  if (!base_) {
    base_ = static_cast<char*>(mmap(nullptr, kSpan, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    TORCH_CHECK(base_ != MAP_FAILED, "no addresses are left for the tensors of the virtual card");
    // Sends what a batch has waited with for too long, so that the slice does not idle while the program thinks.
    std::thread([] {
      for (;;) {
        std::this_thread::sleep_for(std::chrono::microseconds(300));
        client().flush_if_old();
      }
    }).detach();
  }
  TORCH_CHECK(fresh || sequence == sequence_, "the slice server stands at frame ", sequence, ", the program at ", sequence_,
              ": what lies between is in no snapshot, and cannot be gone on from");
  TORCH_CHECK(!capture_, "a step is being recorded: the slice server cannot be changed before its end");
  sequence_ = sequence;
  limit_ = memory_bytes;
  transport_ = transport;
  lost_.clear();
  queue_.clear();
  waiting_ = 0;
  generation_ = ++generations_;
  connections_++;
  if (fresh) put<uint8_t>(queue_, kBegin);
  if (keeps_) journal_.emplace(sequence);
  if (auto kept = std::exchange(seed_, std::nullopt)) seed(*kept);
}

void Client::disconnect(const std::string& why) {
  Lock lock(*this);
  lost_ = why;
  queue_.clear();
}

void Client::finish() {
  Lock lock(*this);
  journal_.reset();
  flush();
}

// Before anything is sent. A card whose server may be replaced waits for the next one.
void Client::ready() {
  if (lost_.empty()) return;
  if (journal_) recover();
  else check();
}

void Client::check() const {
  TORCH_CHECK(lost_.empty(), "virtual card: ", lost_);
}

// The connection is lost. Comes back once everything that was told is told to another server; raises otherwise.
void Client::failed(int outcome) {
  lost_ = outcome == kEnded ? "the slice server has ended the connection" : transport_->error(transport_->state);
  if (journal_) return recover();
  lost_ += ". What the virtual card held is lost with it, unless a server goes on from a snapshot (torch.tessera.reconnect)";
  queue_.clear();
  check();
}

void Client::freed(Handle* handle) {
  std::lock_guard<std::mutex> guard(dead_mutex_);
  if (auto kept = kept_.find(handle->id); kept != kept_.end()) {
    kept->second.let_go = true;
    kept->second.bytes = handle->bytes;
    delete handle;
    return;
  }
  used_ -= handle->bytes;
  dead_bytes_ += handle->bytes;
  dead_.push_back(handle->id);
  delete handle;
}

void Client::drain() {
  std::lock_guard<std::mutex> guard(dead_mutex_);
  for (auto id : dead_) {
    // What a step makes and lets go of belongs to it, and to each of its replays.
    bool of_step = capture_ && capture_->made.erase(id);
    auto& to = of_step ? capture_->commands : queue_;
    put<uint8_t>(to, kFree);
    put(to, id);
  }
  dead_.clear();
  dead_bytes_ = 0;
}

void Client::queued() {
  if (capture_) {
    drain();
    if (capture_->commands.size() > kLongestStep) {
      not_in_graph(c10::str("it has more operations than a graph can hold, ", kLongestStep, " bytes of commands; record a part of it"));
    }
    return;
  }
  if (journal_ && journal_->bytes() > journal_most_) trim();
  if (waiting_++ == 0) queued_since_ = now();
  if (waiting_ >= batch_ || queue_.size() > kFullQueue) flush();
}

void Client::flush(const void* bulk, size_t bytes) {
  if (queue_.empty() && dead_.empty()) return;
  ready();
  drain();
  if (queue_.empty()) return;
  statistics.frames++;
  statistics.bytes += queue_.size() + bytes;
  // Both are kept before either is sent: whatever breaks here, the next server is told the whole.
  if (journal_) {
    journal_->sent(sequence_ + 1, queue_);
    if (bulk) journal_->bulk(bulk, bytes);
    if (auto expected = std::exchange(asking_, std::nullopt)) journal_->asks(*expected);
  }
  int outcome = transport_->send(transport_->state, reinterpret_cast<const uint8_t*>(queue_.data()), queue_.size());
  queue_.clear();
  waiting_ = 0;
  // What is in the journal counts: it arrives with the next connection if not with this one.
  if (outcome == kDone || journal_) sequence_++;
  if (outcome == kDone && bulk) {
    WithoutPython without;
    outcome = transport_->bulk_send(transport_->state, static_cast<const uint8_t*>(bulk), bytes);
  }
  if (outcome != kDone) failed(outcome);
  if (bulk && journal_ && journal_->bytes() > journal_most_) trim();
}

void Client::flush_if_old() {
  if (forked_ || !mutex_.try_lock()) return;
  // Errors are kept by `failed`, and raised in the program where it uses the device next.
  background = true;
  try {
    if (waiting_ && lost_.empty() && now() - queued_since_ > kOld) flush();
  } catch (...) {
  }
  mutex_.unlock();
}

// Waits for what a frame asked, whatever server it comes from. When the wait is broken off, by Ctrl-C for instance, nobody has the answer:
// it must not be taken for that of a later question.
void Client::receive(Awaits what, uint64_t bulk, const std::function<int()>& from) {
  awaits_ = what;
  try {
    for (;;) {
      int outcome;
      {
        WithoutPython without;
        outcome = from();
      }
      if (outcome == kDone) break;
      failed(outcome);
    }
  } catch (...) {
    awaits_ = Awaits::kNothing;
    if (journal_) what == Awaits::kAnswer ? journal_->abandoned(bulk) : journal_->answered_bulk(bulk);
    throw;
  }
  awaits_ = Awaits::kNothing;
}

Reader Client::ask(uint64_t bulk, bool when_done) {
  auto before = sequence_;
  asking_ = bulk;
  try {
    flush();
  } catch (...) {
    asking_.reset();
    if (journal_ && sequence_ != before) journal_->abandoned(bulk);
    throw;
  }
  statistics.waits++;
  const uint8_t* bytes;
  size_t length;
  receive(Awaits::kAnswer, bulk, [&] { return transport_->receive(transport_->state, &bytes, &length); });
  Reader reader(reinterpret_cast<const char*>(bytes), length);
  if (journal_) journal_->answered(reader);
  auto status = static_cast<Status>(reader.get<uint8_t>());
  if (auto number = reader.get<uint64_t>() + (when_done ? 0 : 1); number != sequence_) {
    // Whatever is at fault: no value is better than another one's.
    lost_ = c10::str("frame ", sequence_, " of the program's operations asked for a value, and the slice server has answered frame ", number,
                     ": no value of it can be trusted any more. Start the program again, and please report this");
    journal_.reset();
    check();
  }
  if (status != kFine) raise(read_failure(status, reader));
  return reader;
}

void Client::executed(Reader said) {
  if (journal_) journal_->executed(Bytes(said.rest(), said.left()));
}

// Waits until all that was issued has been executed. Without a connection that is nothing.
void Client::synchronize() {
  if (!connected()) return;
  not_in_graph("it waits for the card");
  ready();
  put<uint8_t>(queue(), kSynchronize);
  ask();
}

void Client::bulk_receive(void* to, size_t bytes) {
  statistics.bytes += bytes;
  receive(Awaits::kBulk, bytes, [&] { return transport_->bulk_receive(transport_->state, static_cast<uint8_t*>(to), bytes); });
  if (journal_) journal_->answered_bulk(bytes);
}

void Client::ask_for(uint64_t bytes) {
  uint64_t used = used_, limit = limit_;
  // While a step is recorded, it has what is reserved for graphs: one is replayed at a time.
  if (capture_ && !workspaces_.empty()) used -= *workspaces_.rbegin();
  // The server must hear what is free before it hears what is wanted; what is large at once, because each slice of a card has its own
  // memory, which may be full before the card is.
  if (dead_bytes_ >= kLarge || used + dead_bytes_ + bytes > limit) drain();
  if (bytes <= limit && used <= limit - bytes) return;
  throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__},
                              c10::str("Tessera out of memory. Tried to allocate ", size_text(bytes), ". Virtual card 0 has a total capacity of ",
                                       size_text(limit), " of which ", size_text(limit > used ? limit - used : 0), " is free. ",
                                       size_text(used), " is allocated by this program."));
}

c10::DataPtr Client::handle(uint64_t id, uint64_t bytes) {
  if (capture_) capture_->made.insert(id);
  auto total = used_ += bytes;
  if (total > peak) peak = total;
  auto* address = base_ + ((id * kApart) & (kSpan - 1));
  return c10::DataPtr(address, new Handle{id, bytes}, [](void* handle) { client().freed(static_cast<Handle*>(handle)); }, kDevice);
}

uint64_t name_at(const void* address) { return client().name_at(address); }

// Names go round the addresses: it is the newest that can have this one.
uint64_t Client::name_at(const void* address) const {
  size_t place = static_cast<const char*>(address) - base_;
  TORCH_CHECK(base_ && place < kSpan && place % kApart == 0, "no tensor of the virtual card begins at this address");
  uint64_t newest = next_storage_ - 1;
  return newest - ((newest - place / kApart) & (kSpan / kApart - 1));
}

c10::Storage Client::storage(uint64_t id, uint64_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, handle(id, bytes), allocator(), true));
}

void Client::grow(const c10::Storage& storage, uint64_t bytes) {
  auto* handle = handle_of(storage.unsafeGetStorageImpl());
  if (handle->bytes == bytes) return;
  not_in_graph("a tensor gets more memory");
  // While it grows, old and new are there at once.
  ask_for(bytes);
  put<uint8_t>(queue_, kResize);
  put(queue_, handle->id);
  put(queue_, bytes);
  grown(handle, bytes);
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  queued();
}

void Client::grown(Handle* handle, uint64_t bytes) {
  used_ += bytes - handle->bytes;
  handle->bytes = bytes;
}

}  // namespace tessera
