// The book of a group, and how storages come to where an operation wants them.
#include "server/group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

namespace tessera {

constexpr uint64_t kSmall = 64 << 10;  // bytes of a storage that is copied to where it is read, and not moved there
constexpr int64_t kBucket = 32 << 20;  // bytes that are summed at once

Group::Group(Executor& own, Exchange exchange, Servers servers, Split split)
    : own_(own), exchange_(std::move(exchange)), servers_(std::move(servers)), division_(servers_.rates),
      watch_(servers_.memory, division_), first_split_(split), split_(split), used_(servers_.memory.size()), most_at_(servers_.memory.size()), random_((uint64_t(1) << servers_.memory.size()) - 1) {
  for (int server = 0; server < size(); server++) fastest_first_.push_back(server);
  std::stable_sort(fastest_first_.begin(), fastest_first_.end(), [&](int a, int b) { return servers_.rates[a] > servers_.rates[b]; });
  bucket_ = room(kBucket);
  leave_out_waiting();
}

// What other servers take is no work of this one's device. On a processor, whose own time is counted, waiting is left out by itself.
void Group::leave_out_waiting() {
  if (own_.device().is_cpu()) return;
  auto apart = [this](auto& exchange) {
    exchange = [this, inner = std::move(exchange)](const auto&... given) {
      own_.pay(true);
      inner(given...);
      // Some are only begun when they return, and what comes next would be counted with their rest.
      own_.wait_for_device();
    };
  };
  apart(exchange_.pass), apart(exchange_.spread), apart(exchange_.sum);
  exchange_.gather = [this, inner = std::move(exchange_.gather)](int64_t number) {
    own_.pay(true);
    return inner(number);
  };
}

void Group::pass_on(const uint8_t* frame, size_t length) {
  if (!lost.empty()) return;
  for (size_t i = 0; i < followers_.size(); i++) {
    auto* follower = followers_[i];
    if (follower->send(follower->state, frame, length) == kDone) continue;
    return gone(c10::str("slice ", i + 1, " of ", size(), " is gone: ", follower->error(follower->state)));
  }
}

void Group::gone(const std::string& why) {
  gone_ = true;
  if (lost.empty()) lost = own_.comes_again ? why : why + ". What the virtual card held is lost with it";
}

Group::Pending Group::set_aside(const Pending& instead) {
  Pending before{failed, elsewhere_, answered_};
  failed = instead.failed, elsewhere_ = instead.elsewhere;
  answered_ = instead.answered.value_or(answered_);
  return before;
}

Placed& Group::book(uint64_t id) {
  auto found = placed_.find(id);
  TORCH_CHECK(found != placed_.end() && !found->second.lost, "a tensor is lost because of an earlier error");
  return found->second;
}

// Throws when a server has no room for all of these, before anything is moved. What they are now is let go of only once they are what they become.
void Group::provide(const Coming& coming) const {
  for (int server = 0; server < size(); server++) {
    uint64_t more = 0;
    for (auto& [id, next] : coming) {
      auto found = placed_.find(id);
      auto bytes = part_of(next, server);
      bool stays = found != placed_.end() && found->second.at(server) && part_of(found->second, server) == bytes;
      if (!stays && __builtin_add_overflow(more, bytes, &more)) more = std::numeric_limits<uint64_t>::max();
    }
    if (more == 0 || fits(server, more)) continue;
    auto text = c10::str("over the memory of slice ", server, " of ", size(), ": ", more, " bytes asked for, ", used_[server], " of ",
                         servers_.memory[server], " in use");
    throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, text);
  }
}

// Notes where a storage is from now on.
void Group::note(uint64_t id, Placed next) {
  auto& before = placed_[id];
  for (int server = 0; server < size(); server++) {
    used_[server] += part_of(next, server) - part_of(before, server);
    most_at_[server] = std::max(most_at_[server], used_[server]);
  }
  count_divided(before, next);
  before = std::move(next);
  most_ = std::max(most_, held());
}

void Group::count_divided(const Placed& before, const Placed& next) {
  if (next.kind == Placed::kRows) divided_ += next.bytes;
  if (before.kind == Placed::kRows) divided_ -= before.bytes;
  most_divided_ = std::max(most_divided_, divided_);
}

void Group::rebook(uint64_t id, Placed next) {
  provide({{id, next}});
  note(id, std::move(next));
}

void Group::wrote(Placed& placed) {
  if (placed.written <= answered_) placed.first = own_.operations;
  placed.written = own_.operations;
}

// The status of a card: the numbers of one slice first.
void Group::describe(Bytes& to, const std::string& about) const {
  for (uint64_t number : {held(), most_, memory(), own_.operations, uint64_t(placed_.size())}) put(to, number);
  for (uint64_t number : {counted.one, counted.all, counted.rows, counted.each, counted.moved_bytes, counted.summed_bytes, counted.exchanges}) put(to, number);
  to += about;
}

uint64_t Group::memory() const {
  uint64_t sum = 0;
  for (auto memory : servers_.memory) sum += memory;
  return sum;
}

uint64_t Group::held() const {
  uint64_t sum = 0;
  for (auto used : used_) sum += used;
  return sum;
}

// A storage of this server that the book has provided for already.
Tensor Group::room(uint64_t bytes) {
  return by_itself(servers_.own, [&] { return at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions(at::kByte).device(own_.device())); });
}

void Group::own_part(uint64_t id, const Tensor& bytes) {
  own_.drop(id);
  own_.keep(id, bytes.storage());
}

// This server's part of a storage, as bytes. What an operation that failed here has left out is nothing, and found by `settle`.
Tensor Group::part(uint64_t id, const Placed& as) {
  auto found = own_.storages_.find(id);
  auto bytes = part_of(as, servers_.own);
  if (found == own_.storages_.end()) {
    own_.note(kRuntime, kWaiting, "a tensor is lost because of an earlier error");
    return room(bytes).zero_();
  }
  if (found->second.storage.nbytes() < bytes) throw Lost(c10::str("slice ", servers_.own, " has less of storage ", id, " than its book says"));
  return bytes_of(found->second.storage, 0, bytes, own_.device());
}

void Group::check_new(uint64_t id) const {
  TORCH_CHECK(!placed_.count(id), "storage ", id, " is there already");
  TORCH_CHECK(placed_.size() < kMostStorages, "more than ", kMostStorages, " storages");
}

void Group::made(uint64_t id, uint64_t bytes) {
  check_new(id);
  Placed placed;
  placed.bytes = bytes;
  placed_.emplace(id, placed);
}

void Group::drop(uint64_t id) {
  own_.drop(id);
  watch_.forget(id);
  auto found = placed_.find(id);
  if (found == placed_.end()) return;
  for (int server = 0; server < size(); server++) used_[server] -= part_of(found->second, server);
  count_divided(found->second, {});
  placed_.erase(found);
}

void Group::clear() {
  watch_.clear();
  watched_ = 0, next_look_ = kFirstLook, seen_peak_ = 0;
  split_ = first_split_;
  placed_.clear();
  divided_ = most_divided_ = 0;
  next_weights_.clear();
  division_ = Division(servers_.rates);
  std::fill(used_.begin(), used_.end(), 0);
  std::fill(most_at_.begin(), most_at_.end(), 0);
  failed = elsewhere_ = false;
  most_ = 0;
  answered_ = own_.operations;
  weigh_from_now();
  // An error that nobody was told of may have kept some from drawing.
  random_ &= -random_;
  if (leads()) exchange_.begin();
}

// Halves are added up as floats: a sum of many is as exact as one device's.
static c10::ScalarType exact(c10::ScalarType type) { return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type; }

// Makes whole what is a sum, all that is asked for at once.
void Group::sum(const std::vector<uint64_t>& ids) {
  std::map<c10::ScalarType, std::vector<uint64_t>> by_type;
  for (auto id : ids) {
    auto& placed = book(id);
    if (placed.kind != Placed::kSum) continue;
    auto& same = by_type[placed.type];
    if (std::find(same.begin(), same.end(), id) == same.end()) same.push_back(id);
  }
  for (auto& [type, same] : by_type) {
    Tensor bucket = bucket_.view(exact(type));
    std::vector<std::pair<Tensor, Tensor>> pieces;  // and where they are in the bucket
    int64_t filled = 0;
    auto add_up = [&] {
      if (filled == 0) return;
      Tensor sums = bucket.narrow(0, 0, filled);
      exchange_.sum(sums);
      counted.exchanges++, counted.summed_bytes += sums.nbytes();
      by_itself(servers_.own, [&] { for (auto& [piece, there] : pieces) piece.copy_(there); });
      pieces.clear(), filled = 0;
    };
    for (auto id : same) {
      Tensor own = part(id, placed_.at(id)).view(type);
      for (int64_t from = 0, count; from < own.numel(); from += count) {
        count = std::min(own.numel() - from, bucket.numel() - filled);
        pieces.emplace_back(own.narrow(0, from, count), bucket.narrow(0, filled, count));
        by_itself(servers_.own, [&] { pieces.back().second.copy_(pieces.back().first); });
        if ((filled += count) == bucket.numel()) add_up();
      }
    }
    add_up();
    for (auto id : same) {
      Placed next = placed_.at(id);
      next.kind = Placed::kWhole, next.holders = all();
      note(id, next);
    }
  }
}

// Has these whole at every server. The book says so only once they are.
void Group::everywhere(const std::vector<uint64_t>& ids) {
  sum(ids);
  std::map<uint64_t, Placed> distinct;
  for (auto id : ids) {
    Placed next = book(id);
    if (next.kind == Placed::kWhole && next.holders == all()) continue;
    next.kind = Placed::kWhole, next.holders = all(), next.units = 0;
    distinct[id] = next;
  }
  Coming coming(distinct.begin(), distinct.end());
  provide(coming);
  std::vector<std::pair<Tensor, int>> pieces;
  std::vector<Tensor> arrived;
  for (auto& [id, next] : coming) {
    auto& before = placed_.at(id);
    int64_t bytes = before.bytes;
    Tensor whole = before.kind == Placed::kWhole && before.at(servers_.own) ? part(id, before) : room(bytes);
    // What nobody has written is the same everywhere.
    if (before.kind == Placed::kNowhere) by_itself(servers_.own, [&] { whole.zero_(); });
    if (before.kind == Placed::kWhole) pieces.emplace_back(whole, lowest(before.holders));
    if (before.kind == Placed::kRows) {
      auto& begins = division_.of(before.units);
      int64_t unit = bytes / before.units;
      for (int server = 0; server < size(); server++) {
        auto piece = whole.narrow(0, begins[server] * unit, (begins[server + 1] - begins[server]) * unit);
        if (server == servers_.own) by_itself(server, [&] { piece.copy_(part(id, before)); });
        pieces.emplace_back(piece, server);
      }
    }
    if (before.kind != Placed::kNowhere) counted.moved_bytes += bytes;
    arrived.push_back(whole);
  }
  std::erase_if(pieces, [](auto& piece) { return piece.first.numel() == 0; });
  if (!pieces.empty()) {
    exchange_.spread(pieces);
    counted.exchanges++;
  }
  for (size_t i = 0; i < coming.size(); i++) {
    note(coming[i].first, coming[i].second);
    own_part(coming[i].first, arrived[i]);
  }
}

// Has one whole at a server; if it is to be written there, nowhere else.
void Group::at_one(uint64_t id, int server, bool written) {
  if (auto kind = book(id).kind; kind == Placed::kRows || kind == Placed::kSum) everywhere({id});
  Placed before = book(id), next = before;
  bool there = before.at(server), copies = there || (!written && before.bytes <= kSmall);
  next.kind = Placed::kWhole;
  next.holders = copies && !written ? before.holders | bit(server) : bit(server);
  rebook(id, next);
  if (before.kind == Placed::kNowhere) {
    if (server == servers_.own) own_part(id, room(before.bytes));
    return;
  }
  if (!there && before.bytes) {
    int from = lowest(before.holders);
    bool receives = server == servers_.own;
    if (receives || from == servers_.own) {
      Tensor bytes = from == servers_.own ? part(id, before) : room(before.bytes);
      exchange_.pass(bytes, from, server);
      if (receives) own_part(id, bytes);
    }
    counted.exchanges++, counted.moved_bytes += before.bytes;
  } else if (!there && server == servers_.own) {
    own_part(id, room(0));
  }
  if (!next.at(servers_.own)) own_.drop(id);
}

// Divides one by rows.
void Group::by_rows(uint64_t id, int64_t units) {
  Placed before = book(id);
  if (before.kind == Placed::kRows && before.units == units) return;
  bool empty = before.kind == Placed::kNowhere;
  if (!empty) everywhere({id});
  Placed whole = book(id), next = whole;
  next.kind = Placed::kRows, next.holders = 0, next.units = units;
  provide({{id, next}});
  auto& begins = division_.of(units);
  int64_t unit = next.bytes / units, begin = begins[servers_.own] * unit, length = begins[servers_.own + 1] * unit - begin;
  Tensor own = room(length);
  if (!empty) by_itself(servers_.own, [&] { own.copy_(part(id, whole).narrow(0, begin, length)); });
  note(id, next);
  own_part(id, own);
}

// The state of the random numbers is at whoever draws.
void Group::random_at(uint64_t servers) {
  if ((random_ & servers) == servers) {
    random_ = servers;
    return;
  }
  int from = lowest(random_);
  Tensor state = own_.random_state();
  if (servers == all()) exchange_.spread({{state, from}});
  else if (servers_.own == from || servers_.own == lowest(servers)) exchange_.pass(state, from, lowest(servers));
  if (servers_.own != from && servers >> servers_.own & 1) own_.set_random_state(state);
  random_ = servers;
}

// Where the next storage that has no reason to be anywhere goes: to the fastest server with room. What a training keeps beside its
// parameters needs some four times as much as they do, so that a fifth of each is filled first, then two.
int Group::home(uint64_t bytes) const {
  if (split_ == Split::kOne) return fastest_first_[0];
  for (uint64_t fifths : {1, 2, 4, 5}) {
    for (int server : fastest_first_) if (used_[server] + bytes <= servers_.memory[server] / 5 * fifths) return server;
  }
  int emptiest = 0;
  auto left = [&](int server) { return int64_t(servers_.memory[server]) - int64_t(used_[server]); };
  for (int server = 1; server < size(); server++) if (left(server) > left(emptiest)) emptiest = server;
  return emptiest;
}

void Group::resize(uint64_t id, uint64_t bytes) {
  Placed before;
  with_room([&] {
    if (auto kind = book(id).kind; kind == Placed::kRows || kind == Placed::kSum) everywhere({id});
    Placed next = before = book(id);
    next.bytes = bytes;
    rebook(id, next);
  });
  if (!before.at(servers_.own)) return;
  Tensor larger = room(bytes), old = part(id, before);
  auto both = std::min<int64_t>(bytes, before.bytes);
  by_itself(servers_.own, [&] { larger.narrow(0, 0, both).copy_(old.narrow(0, 0, both)); });
  own_part(id, larger);
}

void Group::write(uint64_t id, const Layout& layout, Tensor host, bool bulk) {
  auto* placed = &book(id);
  TORCH_CHECK(reach(layout) <= placed->bytes, "a tensor is outside its storage");
  if (!placed->rows) placed->rows = outermost(layout);
  // What is written over as a whole may lie anywhere.
  if ((placed->kind == Placed::kRows || placed->kind == Placed::kSum) && uint64_t(host.nbytes()) == placed->bytes) {
    Placed nowhere = *placed;
    nowhere.kind = Placed::kNowhere;
    rebook(id, nowhere);
    own_.drop(id);
  }
  with_room([&] {
    if (placed->kind == Placed::kNowhere && split_ != Split::kBatch) at_one(id, home(placed->bytes), true);
    else if (placed->kind != Placed::kWhole) everywhere({id});
  });
  if (bulk && host.nbytes()) {
    auto holders = placed->holders;
    int to = lowest(holders);
    if (holders & (holders - 1)) exchange_.spread({{host, 0}});
    else if (to != 0 && (servers_.own == 0 || servers_.own == to)) exchange_.pass(host, 0, to);
    counted.exchanges += holders != 1, counted.moved_bytes += holders != 1 ? host.nbytes() : 0;
  }
  if (!placed->at(servers_.own) || !own_.storages_.count(id)) return;
  by_itself(servers_.own, [&] {
    Tensor to = own_.tensor(id, layout);
    to.copy_(host.view(to.scalar_type()).view(to.sizes()));
  });
}

}  // namespace tessera
