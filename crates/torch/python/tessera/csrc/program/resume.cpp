// Going on with another slice server.
#include "program/client.h"
#include "program/waiting.h"

namespace tessera {

constexpr uint64_t kGraphs = 1ull << 32;  // keys of recorded steps in the journal; those of templates are below

void Client::keep_journal(uint64_t most_bytes, std::function<void(const std::string&)> find_another, std::function<uint64_t()> safe) {
  Lock lock(*this);
  keeps_ = true;
  journal_most_ = most_bytes;
  find_another_ = std::move(find_another);
  safe_ = std::move(safe);
}

void Client::recover() {
  // What is in the journal waits there for a thread of the program.
  if (background) check();
  try {
    find_another_(std::string(lost_));
  } catch (...) {
    // Broken off, by Ctrl-C for instance, when all was told already: its answers are for nobody, and another connection begins without them.
    if (lost_.empty()) lost_ = "the wait for it was broken off";
    throw;
  }
  statistics.resumed++;
}

bool Client::resume(const Transport* transport, uint64_t memory_bytes, uint64_t sequence) {
  Lock lock(*this);
  TORCH_CHECK(journal_, "this program keeps nothing of what it has told its slice server");
  TORCH_CHECK(sequence >= journal_->before() && sequence <= sequence_, "virtual card: ", lost_, ", and the next one goes on from frame ",
              sequence, " of the program's operations, of which those from ", journal_->before() + 1, " to ", sequence_,
              " are kept: what lies between is lost, and the program cannot go on");
  bool told;
  Journal::Trouble trouble;
  {
    WithoutPython without;
    told = journal_->tell(sequence, *transport, trouble);
    // The question was executed, and its answer lost on the way.
    bool executed = journal_->heard_newest() || (awaits_ != Awaits::kNothing && sequence == sequence_);
    if (told && executed) told = Journal::ask_again(*transport, awaits_ == Awaits::kBulk);
  }
  if (trouble.parting) part(trouble);
  if (trouble.failure) raise(*trouble.failure);
  if (!told) return false;
  transport_ = transport;
  limit_ = memory_bytes;
  lost_.clear();
  return true;
}

// The card cannot become what the program takes it for.
void Client::part(const Journal::Trouble& trouble) {
  lost_ = "the slice server that was to go on comes to something else: ";
  if (trouble.parting == Journal::Trouble::kFails) {
    auto& failure = *trouble.failure;
    lost_ += c10::str("what was executed before fails there. ", failure.text, "\n", failure.name, " on the virtual card", where(failure), "\n");
  } else if (trouble.parting == Journal::Trouble::kWorks) {
    lost_ += "what failed before, as the program was told, is executed there. ";
  } else {
    lost_ += "what was executed before gives other shapes there. ";
  }
  lost_ += "Start the program again, from what it has saved";
  journal_.reset();
  check();
}

void Client::defined(uint32_t id, Bytes command) {
  if (journal_ && !capture_) journal_->begins(id, sequence_ + 1, std::move(command), false);
}

void Client::dropped(uint32_t id) {
  if (journal_) journal_->ends(id, sequence_ + 1);
}

void Client::recorded(uint32_t id, Bytes command) {
  if (journal_) journal_->begins(kGraphs | id, sequence_, std::move(command), true);
}

void Client::unrecorded(uint32_t id) {
  if (journal_) journal_->ends(kGraphs | id, sequence_ + 1);
}

// The journal is as long as it may become. First what is in a snapshot that is safe goes; if that is not enough, all that the server has
// executed: then only a server goes on that was told to stop, and has saved itself later than that.
void Client::trim() {
  if (background || trimming_) return;
  trimming_ = true;
  try {
    journal_->forget_up_to(safe_());
    if (journal_->bytes() > journal_most_ / 2) {
      ready();
      put<uint8_t>(queue_, kSynchronize);
      ask();
      journal_->forget_up_to(journal_->executed());
    }
  } catch (...) {
    trimming_ = false;
    throw;
  }
  trimming_ = false;
}

}  // namespace tessera
