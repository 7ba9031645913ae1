// What a program has told its slice server, kept so that another server can be told it again.
//
// A program whose server may be replaced without its notice keeps the frames that no snapshot is known to hold, and what a server must
// have learned before them: templates and recorded steps. A server that goes on from frame N is told those again, and every frame after
// N; answers that the program has had already are thrown away.
#pragma once
#include <cstdint>
#include <deque>
#include <limits>
#include <map>

#include "codec.h"
#include "transport.h"

namespace tessera {

class Journal {
 public:
  explicit Journal(uint64_t sequence) : before_(sequence) {}

  void sent(uint64_t number, const Bytes& commands);
  void bulk(const void* from, size_t bytes);  // that follows the frame which was sent last
  void answered();                            // the newest frame asked something, and its answer is here
  void answered_bulk(uint64_t bytes);         // and so is what followed the answer

  // Frames from `number` on rely on this command; those after the end of it do not.
  void begins(uint64_t key, uint64_t number, Bytes command, bool asks);
  void ends(uint64_t key, uint64_t number);

  uint64_t bytes() const { return bytes_; }
  uint64_t before() const { return before_; }      // the frame before the first one that is kept
  uint64_t executed() const { return executed_; }  // the newest frame that is known to have been executed
  void forget_up_to(uint64_t number);

  // Tells all of it to a server that stands at this frame; false when the connection breaks.
  bool tell(uint64_t sequence, const Transport& to);
  // Has the last answer sent again; what comes next is its bulk data when it has been heard itself.
  static bool ask_again(const Transport& to, bool heard);

 private:
  struct Frame {
    uint64_t number;
    Bytes commands, bulk;
    bool answered = false;
    uint64_t answered_bulk = 0;
  };
  struct Standing {
    uint64_t key, from, to;
    Bytes command;
    bool asks;
  };
  bool tell_standing(uint64_t sequence, const Transport& to);

  std::deque<Frame> frames_;
  std::deque<Standing> standing_;        // in the order in which they were told
  std::map<uint64_t, Standing*> lasting_;  // those that have no end yet
  uint64_t before_, executed_ = 0, bytes_ = 0;
};

}  // namespace tessera
