// Recording a step and replaying it, at the program.
//
// While a step is recorded its operations are not executed: they go into the recording instead of the queue, with what defines them.
// It is sent once; a replay is its number. The slice server makes the same storages anew under the same names, so that tensors of the
// step show what the last replay left in them. Storages from outside are held, because replays work on them.
#include "program/client.h"

namespace tessera {

void Client::not_in_graph(const std::string& why) {
  if (!capture_) return;
  auto text = c10::str("this cannot be recorded in a graph: ", why, " (", where(line(), "issued"), ")");
  if (capture_->refused.empty()) capture_->refused = text;
  throw c10::Error({__func__, __FILE__, __LINE__}, text);
}

void Client::records_number(const Tensor& tensor) { capture_->numbers.emplace_back(tensor.detach(), number_in(tensor)); }

void Client::check_numbers(const Recording& recording) {
  for (auto& [tensor, recorded] : recording.numbers) {
    TORCH_CHECK(number_in(tensor) == recorded, "a tensor on the processor has another number now than when the step was recorded, which a ",
                "replay would use: put it on the card, or record the step again");
  }
}

void Client::begin_capture() {
  Use use(*this);
  ready();
  TORCH_CHECK(!capture_, "a step is being recorded already; one at a time");
  flush();
  capture_ = std::make_shared<Recording>();
  capture_->id = next_graph_++;
  capture_->first = next_storage_;
  // A recording holds what defines its operations, so that a server can be given it whole.
  generation_before_ = std::exchange(generation_, ++generations_);
}

void Client::keep(uint64_t id) {
  if (!capture_->held.insert(id).second) return;
  std::lock_guard<std::mutex> guard(dead_mutex_);
  kept_[id].graphs++;
}

void Client::let_go(const std::unordered_set<uint64_t>& ids) {
  std::lock_guard<std::mutex> guard(dead_mutex_);
  for (auto id : ids) {
    auto found = kept_.find(id);
    if (--found->second.graphs) continue;
    if (found->second.let_go) {
      used_ -= found->second.bytes;
      dead_bytes_ += found->second.bytes;
      dead_.push_back(id);
    }
    kept_.erase(found);
  }
}

void Client::abandon_capture() {
  Lock lock(*this);
  if (!capture_) return;
  drain();
  generation_ = generation_before_;
  capture_.reset();  // which lets go of what it held
}

std::shared_ptr<Recording> Client::end_capture() {
  Lock lock(*this);
  TORCH_CHECK(capture_, "no step is being recorded");
  auto made = capture_;
  if (!made->refused.empty()) {
    abandon_capture();
    TORCH_CHECK(false, "nothing was recorded: ", made->refused);
  }
  drain();
  {
    // What a thread frees from here on is the graph's already.
    std::lock_guard<std::mutex> guard(dead_mutex_);
    for (auto id : dead_) {
      if (!made->made.erase(id)) continue;
      put<uint8_t>(made->commands, kFree);
      put(made->commands, id);
    }
    std::erase_if(dead_, [&](auto id) { return id >= made->first; });
    for (auto id : made->made) kept_[id].graphs++;
  }
  made->held.insert(made->made.begin(), made->made.end());
  generation_ = generation_before_;
  capture_.reset();
  recordings_[made->id] = made.get();
  if (!made->lines.empty()) send(*made);
  return made;
}

// Gives a recording to the slice server, which says how much memory it needs beside what it leaves behind.
void Client::send(Recording& recording) {
  flush();
  ready();
  Bytes command;
  put<uint8_t>(command, kRecord);
  put(command, recording.id);
  put_text(command, recording.commands);
  queue_ += command;
  auto reply = ask();
  recorded(recording.id, std::move(command));
  if (recording.sent_to) reserve(recording.workspace, false);
  recording.workspace = reply.get<uint64_t>();
  recording.sent_to = connections_;
  reserve(recording.workspace, true);
}

// Replays come one after the other, so that the largest of what they need is enough for all.
void Client::reserve(uint64_t workspace, bool more) {
  auto largest = [&] { return workspaces_.empty() ? 0 : *workspaces_.rbegin(); };
  auto before = largest();
  if (more) workspaces_.insert(workspace);
  else workspaces_.erase(workspaces_.find(workspace));
  auto total = used_ += largest() - before;
  if (total > peak) peak = total;
}

void Client::replay(Recording& recording) {
  Use use(*this);
  not_in_graph("it replays another graph");
  check_numbers(recording);
  ready();
  if (recording.lines.empty()) return;
  // A server that goes on from a snapshot has the tensors, and is given the graphs again.
  if (recording.sent_to != connections_) send(recording);
  put<uint8_t>(queue_, kReplay);
  put(queue_, recording.id);
  issued({});
  statistics.operations += recording.lines.size() - 1;
  statistics.replays++;
  flush();
}

void Client::forget(Recording& recording) {
  if (forked_) return;
  Lock lock(*this);
  recordings_.erase(recording.id);
  let_go(recording.held);
  if (!recording.sent_to) return;
  reserve(recording.workspace, false);
  if (recording.sent_to != connections_ || (!lost_.empty() && !journal_)) return;
  unrecorded(recording.id);
  put<uint8_t>(queue_, kForget);
  put(queue_, recording.id);
  if (!capture_) queued();
}

Recording::~Recording() {
  try {
    client().forget(*this);
  } catch (...) {
    // The connection is lost: whoever uses the card next is told, and nothing is left of the graph.
  }
}

}  // namespace tessera
