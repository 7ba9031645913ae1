// What a snapshot holds and is restored from: every storage whole and once, whichever servers have it, read and written a piece at a time.
//
// The first server of a group has the file, and tells the others what it needs of them; each finds in its own book whether that is its
// part. A card that is not divided as the one before was has its storages where its plan would have put them.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "server/group.h"

namespace tessera {

// Bytes that lie together at a server: where in its part of a storage, and where in the piece that is looked at.
struct Stretch {
  int server;
  int64_t within, at, length;
};

// Where a piece of a storage lies; one that is whole lies at each of its holders.
static std::vector<Stretch> stretches(const Placed& placed, const Division& division, int64_t begin, int64_t length) {
  std::vector<Stretch> found;
  if (placed.kind == Placed::kWhole) {
    for (int server = 0; server < division.servers(); server++) if (placed.at(server)) found.push_back({server, begin, 0, length});
  } else if (placed.kind == Placed::kRows) {
    auto& begins = division.of(placed.units);
    int64_t unit = placed.bytes / placed.units;
    for (int server = 0; server < division.servers(); server++) {
      int64_t own = begins[server] * unit, from = std::max(begin, own), to = std::min(begin + length, begins[server + 1] * unit);
      if (from < to) found.push_back({server, from - own, from - begin, to - from});
    }
  }
  return found;
}

static bool reaches_others(const std::vector<Stretch>& of) {
  return std::any_of(of.begin(), of.end(), [](auto& stretch) { return stretch.server != 0; });
}

static void check_piece(uint64_t bytes, uint64_t begin, uint64_t length) {
  TORCH_CHECK(begin <= bytes && length <= bytes - begin, "a piece is outside its storage");
}

// From the first server to the others.
void Group::tell(const Bytes& frame) {
  if (!leads()) return;
  pass_on(reinterpret_cast<const uint8_t*>(frame.data()), frame.size());
  if (!lost.empty()) throw Lost(lost);
}

// Before what the card holds is read: all have executed the same, know of the same error, and have nothing that only all together are.
void Group::quiesce() {
  tell({static_cast<char>(kQuiesce)});
  ask_all();
  // The program has not been told: what follows is skipped until it is.
  failed = settle();
  random_at(1);
  // What is written is what the card goes on with, in each bit: so sums are made on the card too.
  std::vector<uint64_t> sums;
  for (auto& [id, placed] : placed_) if (placed.kind == Placed::kSum && !placed.lost) sums.push_back(id);
  std::sort(sums.begin(), sums.end());
  sum(sums);
  own_.pay(true);
  if (!saved_at_) saved_at_ = own_.meters.computed;
}

// What is lost because of an error is left out: who uses it afterwards is told so, as before.
std::vector<Holding> Group::holdings() const {
  std::vector<Holding> all;
  for (auto& [id, placed] : placed_) {
    if (placed.lost) continue;
    auto kind = placed.kind == Placed::kNowhere ? Holding::kNowhere : placed.kind == Placed::kRows ? Holding::kRows : Holding::kWhole;
    all.push_back({id, placed.bytes, kind, placed.holders, placed.units, placed.rows});
  }
  return all;
}

// A piece of a storage, for the first server.
Tensor Group::fetch(uint64_t id, int64_t begin, int64_t length) {
  auto& placed = book(id);
  check_piece(placed.bytes, begin, length);
  auto from = stretches(placed, division_, begin, length);
  if (placed.kind == Placed::kWhole) from.resize(1);
  if (reaches_others(from)) {
    Bytes frame(1, static_cast<char>(kFetch));
    put(frame, id), put(frame, begin), put(frame, length);
    tell(frame);
  }
  if (from.size() == 1 && from[0].server == 0) return part(id, placed).narrow(0, begin, length).cpu();
  Tensor piece = by_itself(servers_.own, [&] { return at::zeros({leads() ? length : 0}, at::kByte); });
  for (auto& stretch : from) {
    bool has = stretch.server == servers_.own;
    if (!has && !leads()) continue;
    Tensor bytes = by_itself(servers_.own, [&] {
      return has ? part(id, placed).narrow(0, stretch.within, stretch.length).cpu() : piece.narrow(0, stretch.at, stretch.length);
    });
    if (stretch.server != 0) exchange_.pass(bytes, stretch.server, 0);
    else piece.narrow(0, stretch.at, stretch.length).copy_(bytes);
  }
  return piece;
}

Placed Group::placed_as(const Holding& as) const {
  Placed placed;
  placed.bytes = as.bytes, placed.rows = as.rows;
  if (as.kind == Holding::kWhole) placed.kind = Placed::kWhole, placed.holders = as.holders;
  if (as.kind == Holding::kRows) placed.kind = Placed::kRows, placed.units = as.units;
  return placed;
}

bool Group::has_room(const Holding& as) const {
  auto placed = placed_as(as);
  for (int server = 0; server < size(); server++) if (!fits(server, part_of(placed, server))) return false;
  return true;
}

// Where a storage of a snapshot is to be, at the first server: where it was, if this card has room there, or where the plan has such.
Holding Group::place(const Holding& was) const {
  if (was.kind == Holding::kNowhere) return was;
  Holding as = was;
  bool divisible = split_ == Split::kBatch && was.units >= size() && was.bytes > 0 && was.bytes % was.units == 0;
  if (was.kind == Holding::kRows && divisible && has_room(as)) return as;
  as.kind = Holding::kWhole, as.units = 0;
  if (was.kind == Holding::kWhole && was.holders && !(was.holders & ~all()) && has_room(as)) return as;
  as.holders = all();
  if (split_ == Split::kBatch && has_room(as)) return as;
  as.holders = bit(home(was.bytes));
  return as;
}

void Group::hold(const Holding& as) {
  check_new(as.id);
  auto placed = placed_as(as);
  provide({{as.id, placed}});
  Bytes frame(1, static_cast<char>(kHold));
  put(frame, as.id), put(frame, as.bytes), put(frame, as.kind), put(frame, as.holders), put(frame, as.units), put(frame, as.rows);
  tell(frame);
  note(as.id, placed);
  if (placed.at(servers_.own)) own_part(as.id, room(part_of(placed, servers_.own)));
}

// A piece of a storage, which only the first server has, to where it belongs.
void Group::store(uint64_t id, int64_t begin, int64_t length, Tensor piece) {
  auto& placed = book(id);
  check_piece(placed.bytes, begin, length);
  if (!leads()) piece = by_itself(servers_.own, [&] { return at::empty({length}, at::kByte); });
  Bytes frame(1, static_cast<char>(kStore));
  put(frame, id), put(frame, begin), put(frame, length);
  auto to = stretches(placed, division_, begin, length);
  if (reaches_others(to)) tell(frame);
  bool by_all = placed.kind == Placed::kWhole && placed.holders == all();
  if (by_all) exchange_.spread({{piece, 0}});
  for (auto& stretch : to) {
    bool takes = stretch.server == servers_.own;
    if (!takes && !leads()) continue;
    Tensor bytes = piece.narrow(0, stretch.at, stretch.length);
    if (!by_all && stretch.server != 0) exchange_.pass(bytes, 0, stretch.server);
    if (takes) by_itself(servers_.own, [&] { part(id, placed).narrow(0, stretch.within, stretch.length).copy_(bytes); });
  }
}

// All that the snapshot holds is there. The first server has the state of the random numbers.
void Group::restored(bool has_failed) {
  Bytes frame(1, static_cast<char>(kRestored));
  put(frame, own_.sequence), put(frame, own_.operations), put<uint8_t>(frame, has_failed);
  tell(frame);
  failed = has_failed;
  random_ = 1;
  answered_ = own_.operations;
  weigh_from_now();
}

// What the first server tells of a snapshot, at the others. Pieces are as long as it says: it is one of the card.
void Executor::obey(Reader& frame, const Transport* transport) {
  auto command = frame.get<uint8_t>();
  if (command == kQuiesce) return group_->quiesce();
  if (command == kAnswer) return reply(transport, {});
  if (command == kRestored) {
    sequence = frame.get<uint64_t>(), operations = frame.get<uint64_t>();
    return group_->restored(frame.get<uint8_t>() != 0);
  }
  auto id = frame.get<uint64_t>();
  if (command == kHold) {
    Holding as;
    as.id = id, as.bytes = frame.get<uint64_t>(), as.kind = frame.get<Holding::Kind>(), as.holders = frame.get<uint64_t>();
    as.units = frame.get<int64_t>(), as.rows = frame.get<int64_t>();
    return group_->hold(as);
  }
  auto begin = frame.get<int64_t>(), length = frame.get<int64_t>();
  if (command == kFetch) group_->fetch(id, begin, length);
  if (command == kStore) group_->store(id, begin, length, Tensor());
}

// What needs other servers, at the first one of a group.
template <class Work>
auto Executor::for_snapshot(Work work) {
  try {
    return work();
  } catch (const Lost& error) {
    if (group_) group_->gone(error.what());
    throw;
  }
}

void Executor::quiesce() {
  for_snapshot([&] { if (group_) group_->quiesce(); });
}

std::vector<Holding> Executor::holdings() const {
  std::vector<Holding> all;
  if (group_) all = group_->holdings();
  else for (auto& [id, held] : storages_) all.push_back({id, held.bytes});
  std::sort(all.begin(), all.end(), [](auto& one, auto& other) { return one.id < other.id; });
  return all;
}

Tensor Executor::fetch(uint64_t id, uint64_t begin, uint64_t length) {
  if (group_) return for_snapshot([&] { return group_->fetch(id, begin, length); });
  auto& held = storages_.at(id);
  check_piece(held.bytes, begin, length);
  return bytes_of(held.storage, begin, length, device_).cpu();
}

void Executor::hold(const Holding& was) {
  if (group_) return for_snapshot([&] { group_->hold(group_->place(was)); });
  keep(was.id, allocate(was.bytes).storage());
}

void Executor::store(uint64_t id, uint64_t begin, const Tensor& piece) {
  if (group_) return for_snapshot([&] { group_->store(id, begin, piece.numel(), piece); });
  auto& held = storages_.at(id);
  check_piece(held.bytes, begin, piece.numel());
  bytes_of(held.storage, begin, piece.numel(), device_).copy_(piece);
}

void Executor::restored() {
  for_snapshot([&] { if (group_) group_->restored(failure_.has_value()); });
}

}  // namespace tessera
