// The program's side: what is queued for the slice server, what is known of storages, and what an error is told with.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <functional>
#include <optional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "program/journal.h"
#include "wire/codec.h"
#include "wire/transport.h"

namespace tessera {

const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);
const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

struct Statistics {
  uint64_t operations = 0, frames = 0, bytes = 0, waits = 0, replays = 0, templates = 0, views = 0, immediate = 0, resumed = 0;
};

std::string size_text(uint64_t bytes);

// A line of the program: the operation that it issued, its code and where it is in it.
struct Line {
  uint64_t operation = 0;
  void* code = nullptr;
  int instruction = 0;
  bool aside = false;  // by a thread of PyTorch: the line is that of what the program issued last
};

// A tensor that a step is called with, or gives.
struct Form {
  enum Of : uint8_t { kParameter, kMade, kOutside };
  Of of;
  uint64_t place = 0, bytes = 0;  // which parameter, or which of those that it makes
  c10::Storage outside;
  Layout layout;
};

// A step that was recorded. Its operations are executed by replays only; what they work on is held as long as it lives.
struct Recording {
  uint32_t id;
  uint64_t first;  // storage that was made in it
  Bytes commands;
  std::vector<Line> lines;
  std::unordered_set<uint64_t> held;  // storages from outside; once it is complete also those that it leaves behind
  std::unordered_set<uint64_t> made;  // storages that it has made, while they live
  uint64_t workspace = 0;             // memory that it needs beside what it leaves behind
  uint32_t sent_to = 0;               // the connection that knows it
  std::string refused;
  std::vector<std::pair<Tensor, Bytes>> numbers;  // tensors on the processor with one number, which are recorded with it
  // Of a step that is called: the storages that stand for its parameters, those that it makes for its results, and both as tensors.
  std::vector<uint64_t> stand_ins, results_made;
  std::vector<Form> parameters, results;
  ~Recording();
};

// A storage as the program holds it: a name, and how large it is. Its memory is at the slice server.
struct Handle {
  uint64_t id;
  uint64_t bytes;
};

inline Handle* handle_of(const c10::StorageImpl* storage) {
  auto* handle = static_cast<Handle*>(storage->data_ptr().get_context());
  TORCH_CHECK(handle, "memory of a virtual card that is known by its address only stays as it is");
  return handle;
}
// PyTorch makes storages of the addresses of others, as to pickle them: then the address says which.
uint64_t name_at(const void* address);
inline uint64_t name_of(const c10::StorageImpl* storage) {
  auto* handle = static_cast<Handle*>(storage->data_ptr().get_context());
  return handle ? handle->id : name_at(storage->data_ptr().get());
}

class Client {
 public:
  // Takes the lock of the device, and lets go of Python's where it has to wait for it.
  class Lock {
   public:
    explicit Lock(Client& client);
    ~Lock() { client_.mutex_.unlock(); }

   protected:
    Client& client_;
  };

  // The same for what needs the server: the first one connects, and raises what keeps it from that.
  class Use : public Lock {
   public:
    explicit Use(Client& client);
  };

  void set_connector(std::function<void()> connector) { connector_ = std::move(connector); }
  void connect(const Transport* transport, uint64_t memory_bytes, uint64_t sequence, bool fresh);
  void disconnect(const std::string& why);
  void finish();  // the program ends: sends what is left, and waits for no other server if this one is gone

  // For a card whose slice server may be replaced: what is told is kept, so that another can be told it, resume.cpp. `find_another`
  // calls `resume` until that says yes, or raises why there is none; `safe` tells up to which frame snapshots are known to be safe.
  void keep_journal(uint64_t most_bytes, std::function<void(const std::string&)> find_another, std::function<uint64_t()> safe);
  bool resume(const Transport* transport, uint64_t memory_bytes, uint64_t sequence);
  bool keeps_journal() const { return journal_.has_value(); }
  void defined(uint32_t id, Bytes command);  // a template
  void dropped(uint32_t id);
  void recorded(uint32_t id, Bytes command);  // a step that was sent
  void unrecorded(uint32_t id);
  bool connected() const { return transport_ != nullptr; }
  void after_fork();
  void count_from(uint64_t operations) { operations_base_ = operations; }
  bool forked() const { return forked_; }
  void seed(uint64_t seed);

  // With the lock held:
  Bytes& queue() { return capture_ ? capture_->commands : queue_; }
  Bytes& past_capture() { return queue_; }  // what is no part of a step that is being recorded
  void queued();
  // Waits for a server if there is none. To be called before a question, or the announcement of bulk data, is put into the queue: nothing
  // half said stays there when the wait is broken off.
  void ready();
  void flush(const void* bulk = nullptr, size_t bytes = 0);  // and bulk data that the last command announces
  void synchronize();
  void flush_if_old();
  // Flushes, waits for the reply and raises the error in it; the bytes are good until the next call. Bulk data of this size may follow it.
  // What is answered when its frame is done has the number of that frame; all else has the one before.
  Reader ask(uint64_t bulk = 0, bool when_done = false);
  void executed(Reader said);  // what was answered, of which the program holds the shapes now
  void bulk_receive(void* to, size_t bytes);
  uint64_t next_storage(uint64_t count = 1) { return std::exchange(next_storage_, next_storage_ + count); }
  uint32_t next_template() { return next_template_++; }
  uint32_t generation() const { return generation_; }
  void issued(c10::ArrayRef<c10::TensorImpl*> slots);

  // Recording and replaying steps, graph.cpp.
  bool capturing() const { return capture_ != nullptr; }
  bool made_in_capture(const c10::StorageImpl* storage) const { return capture_ && name_of(storage) >= capture_->first; }
  void not_in_graph(const std::string& why);  // raises it when a step is being recorded
  void records_number(const Tensor& tensor);
  void begin_capture();
  std::shared_ptr<Recording> end_capture();
  void abandon_capture();
  void replay(Recording& recording);
  void forget(Recording& recording);
  // Steps that are called with tensors of their own, calls.cpp.
  Tensor stand_in(const Tensor& like);
  uint64_t name_at(const void* address) const;
  void make_callable(Recording& recording, const std::vector<Tensor>& parameters, const std::vector<Tensor>& results);
  std::optional<std::vector<Tensor>> call(Recording& recording, const std::vector<Tensor>& arguments);

  void ask_for(uint64_t bytes);  // raises PyTorch's out-of-memory error when the virtual card has no room
  c10::DataPtr handle(uint64_t id, uint64_t bytes);
  c10::Storage storage(uint64_t id, uint64_t bytes);
  void grow(const c10::Storage& storage, uint64_t bytes);
  void grown(Handle* handle, uint64_t bytes);  // the server has made it larger
  void freed(Handle* handle);

  void set_batch(int operations) { batch_ = operations; }
  // Lines below these folders are PyTorch's or ours, not the program's.
  void set_libraries(std::vector<std::string> folders) { libraries_ = std::move(folders); }
  Statistics statistics;
  uint64_t used() const { return used_; }
  uint64_t limit() const { return limit_; }
  uint64_t sequence() const { return sequence_; }
  std::atomic<uint64_t> peak{0};

 private:
  // What the program waits for: an answer, or the bulk data that follows it.
  enum class Awaits { kNothing, kAnswer, kBulk };
  // A storage that recorded steps work on: freed when the last of them is, if the program has let go of it.
  struct Kept {
    uint32_t graphs = 0;
    bool let_go = false;
    uint64_t bytes = 0;
  };
  void check() const;
  void recover();
  void receive(Awaits what, uint64_t bulk, const std::function<int()>& from);
  void trim();
  Line line();
  void keep(uint64_t id);
  void let_go(const std::unordered_set<uint64_t>& ids);
  void send(Recording& recording);
  void reserve(uint64_t workspace, bool more);
  static void check_numbers(const Recording& recording);
  void failed(int outcome);
  void drain();
  void* innermost(int* instruction);
  std::string where(const Line& line, const char* what) const;
  std::string where(const Failure& failure) const;
  [[noreturn]] void raise(const Failure& failure);
  [[noreturn]] void part(const Journal::Trouble& trouble);

  std::recursive_mutex mutex_;
  std::mutex dead_mutex_;
  std::vector<uint64_t> dead_;
  const Transport* transport_ = nullptr;
  std::function<void()> connector_;
  std::optional<Journal> journal_;
  uint64_t journal_most_ = 0;
  std::function<void(const std::string&)> find_another_;
  std::function<uint64_t()> safe_;
  Awaits awaits_ = Awaits::kNothing;
  std::optional<uint64_t> asking_;  // the queue ends with a question, and so many bytes may follow its answer
  bool trimming_ = false, keeps_ = false;
  std::optional<uint64_t> seed_;  // to be sent once there is a server
  std::string lost_ = "no slice server: nothing is connected";
  Bytes queue_, reply_;
  int batch_ = 32, waiting_ = 0;
  uint64_t queued_since_ = 0;
  uint64_t next_storage_ = 1, sequence_ = 0, operations_base_ = 0;
  uint32_t next_template_ = 1, generation_ = 0, generations_ = 0, connections_ = 0, next_graph_ = 1;
  std::shared_ptr<Recording> capture_;
  std::unordered_map<uint32_t, Recording*> recordings_;
  std::unordered_map<uint64_t, Kept> kept_;  // under dead_mutex_
  std::multiset<uint64_t> workspaces_;
  uint32_t generation_before_ = 0;
  std::atomic<uint64_t> used_{0}, limit_{0}, dead_bytes_{0};
  std::atomic<bool> forked_{false};
  char* base_ = nullptr;
  std::vector<std::string> libraries_;
  std::vector<Line> lines_;
  Line last_;
  std::unordered_map<void*, bool> of_library_;
};

Client& client();

// The boxed kernel behind every operator of the device.
void dispatch(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// What makes operators special, by words in their names, and which of them are bound one by one: operators.py.
using Words = std::unordered_map<std::string, std::vector<std::string>>;
void install(const std::vector<std::string>& bound, Words words);
void set_words(Words words);
Tensor upload(const Tensor& from);
Tensor fetch(const Tensor& from);
void write_to(const Tensor& to, const Tensor& from);
c10::Allocator* allocator();
void drop_templates();

}  // namespace tessera
