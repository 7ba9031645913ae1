// What a program has told its slice server, kept so that another server can be told it again.
//
// A program whose server may be replaced without its notice keeps the frames that no snapshot is known to hold, and what a server must
// have learned before them: templates and recorded steps. A server that goes on from frame N is told those again, and every frame after
// N; answers that the program has had already are thrown away.
//
// What no server is known to have executed may have ended the one before. It is told under watch, which costs a question for each frame:
// the server says which operation it begins. One by which servers end again and again is condemned: it is an error in the program.
#pragma once
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>

#include "wire/codec.h"
#include "wire/failure.h"
#include "wire/transport.h"

namespace tessera {

class Journal {
 public:
  explicit Journal(uint64_t sequence) : before_(sequence) {}

  void sent(uint64_t number, const Bytes& commands);
  void bulk(const void* from, size_t bytes);  // that follows the newest frame
  void asks(uint64_t bulk);                   // the newest frame does, and so many bytes may follow its answer
  void answered(const Reader& answer);        // the newest frame asked something, and this is what came
  void executed(Bytes shapes);                // the newest frame has executed an operation at once, which has made this
  void answered_bulk(uint64_t bytes);         // and so is what followed the answer
  // Nobody waits any more for what the newest frame asked. Its answer is passed over where it comes, with so many bytes of bulk data if it
  // says that they follow; an error in it is still to be told.
  void abandoned(uint64_t bulk);

  // Frames from `number` on rely on this command; those after the end of it do not.
  void begins(uint64_t key, uint64_t number, Bytes command, bool asks);
  void ends(uint64_t key, uint64_t number);

  uint64_t bytes() const { return bytes_; }
  uint64_t before() const { return before_; }      // the frame before the first one that is kept
  uint64_t executed() const { return executed_; }  // the newest frame that is known to have been executed
  void forget_up_to(uint64_t number);

  // Why telling has ended before its end.
  struct Trouble {
    // What the program was told once and what is answered now are not the same: an operation fails, does not fail any more, or gives other
    // shapes. What the program does next would be for tensors that are not there.
    enum Parting { kNone, kFails, kWorks, kOtherShapes } parting = kNone;
    std::optional<Failure> failure;  // what fails: or, without a parting, what the program has not heard of, because it waits no more
    explicit operator bool() const { return parting != kNone || failure; }
  };
  // Tells all of it to a server that stands at this frame; false when the connection breaks, or something is wrong.
  bool tell(uint64_t sequence, const Transport& to, Trouble& trouble);
  // Whether the answer that is waited for came while it was told: it is to be asked for again.
  bool heard_newest() const { return heard_newest_; }
  // Has the last answer sent again; what comes next is its bulk data when it has been heard itself.
  static bool ask_again(const Transport& to, bool heard);

 private:
  struct Frame {
    uint64_t number;
    Bytes commands, bulk;
    bool asks = false, answered = false, abandoned = false;
    uint64_t asked_bulk = 0, answered_bulk = 0;
    bool failed = false;  // as the program was told
    Bytes executed;       // what it was told of an operation that was executed at once
  };
  struct Standing {
    uint64_t key, from, to;
    Bytes command;
    bool asks;
  };
  struct Operation {
    uint64_t number, frame;
    int ended = 0;  // servers
  };
  bool tell_standing(uint64_t sequence, const Transport& to);
  bool tell_frame(Frame& frame, uint64_t sequence, const Transport& to, Trouble& trouble);
  bool tell_watched(Frame& frame, const Transport& to, Trouble& trouble);
  Trouble trouble_in(Frame& frame, const Bytes& answer);
  void condemn(uint64_t operation, uint64_t frame);
  void judge(uint64_t sequence);

  std::deque<Frame> frames_;
  std::deque<Standing> standing_;        // in the order in which they were told
  std::map<uint64_t, Standing*> lasting_;  // those that have no end yet
  uint64_t before_, executed_ = 0, bytes_ = 0;
  std::optional<Operation> begun_, suspect_;  // the one that a server has said it begins; the one by which servers ended
  size_t told_failed_ = 0;
  bool telling_ = false, heard_newest_ = false;
};

}  // namespace tessera
