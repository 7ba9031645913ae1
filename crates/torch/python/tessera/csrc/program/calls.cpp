// Steps that are called: replays of a recording with tensors that its caller gives, and results that are the caller's.
//
// It is recorded with stand-ins for its parameters: names of storages that nothing lies behind. A call is one message, which says what
// they stand for this time, and how what the step leaves behind is to be called. Nothing is copied.
#include "program/client.h"

namespace tessera {

static bool is_here(const Tensor& tensor) { return tensor.defined() && tensor.device().type() == kDevice.type() && tensor.has_storage(); }

static Layout layout_of(const Tensor& tensor) {
  return {tensor.scalar_type(), static_cast<uint8_t>((tensor.is_conj() ? kConjugate : 0) | (tensor.is_neg() ? kNegative : 0)),
          tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset()};
}

static bool fits(const Tensor& tensor, const Layout& layout) {
  return is_here(tensor) && tensor.scalar_type() == layout.type && tensor.sizes() == c10::IntArrayRef(layout.sizes) &&
         tensor.strides() == c10::IntArrayRef(layout.strides) && tensor.storage_offset() == layout.offset && !tensor.is_conj() && !tensor.is_neg();
}

static Tensor tensor_in(const c10::Storage& storage, const Layout& layout) {
  return make_tensor(storage, kKeys, layout.type, layout.sizes, layout.strides, layout.offset);
}

Tensor Client::stand_in(const Tensor& like) {
  Use use(*this);
  TORCH_CHECK(is_here(like) && !like.is_conj() && !like.is_neg(), "only plain tensors of the virtual card can be parameters of a step");
  auto bytes = like.storage().nbytes();
  auto storage = this->storage(next_storage(), 0);  // it counts nothing
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  return tensor_in(storage, layout_of(like));
}

void Client::make_callable(Recording& recording, const std::vector<Tensor>& parameters, const std::vector<Tensor>& results) {
  Lock lock(*this);
  std::unordered_map<uint64_t, size_t> places;
  for (auto& parameter : parameters) {
    auto id = name_of(parameter.storage().unsafeGetStorageImpl());
    places[id] = recording.stand_ins.size();
    recording.stand_ins.push_back(id);
    recording.parameters.push_back({Form::kParameter, places[id], 0, {}, layout_of(parameter)});
  }
  std::unordered_map<uint64_t, size_t> made;
  for (auto& result : results) {
    TORCH_CHECK(is_here(result) && !result.is_conj() && !result.is_neg(), "it gives something that is no plain tensor of the virtual card");
    auto* handle = handle_of(result.storage().unsafeGetStorageImpl());
    Form form{Form::kOutside, 0, result.storage().nbytes(), {}, layout_of(result)};
    if (auto found = places.find(handle->id); found != places.end()) {
      form.of = Form::kParameter, form.place = found->second;
    } else if (recording.made.count(handle->id)) {
      auto [place, is_new] = made.try_emplace(handle->id, recording.results_made.size());
      form.of = Form::kMade, form.place = place->second;
      if (is_new) {
        recording.results_made.push_back(handle->id);
        // Each call makes one of its own, which is counted then.
        grown(handle, 0);
      }
    } else {
      form.outside = result.storage();
    }
    recording.results.push_back(std::move(form));
  }
}

std::optional<std::vector<Tensor>> Client::call(Recording& recording, const std::vector<Tensor>& arguments) {
  if (arguments.size() != recording.parameters.size()) return std::nullopt;
  for (size_t i = 0; i < arguments.size(); i++) if (!fits(arguments[i], recording.parameters[i].layout)) return std::nullopt;
  Use use(*this);
  not_in_graph("it calls a compiled step");
  check_numbers(recording);
  ready();
  if (recording.sent_to != connections_) send(recording);
  std::vector<uint64_t> sizes(recording.results_made.size());
  for (auto& result : recording.results) if (result.of == Form::kMade) sizes[result.place] = result.bytes;
  uint64_t total = 0;
  for (auto bytes : sizes) total += bytes;
  ask_for(total);
  put<uint8_t>(queue_, kCall);
  put(queue_, recording.id);
  put<uint32_t>(queue_, arguments.size());
  for (size_t i = 0; i < arguments.size(); i++) {
    put(queue_, recording.stand_ins[i]);
    put(queue_, name_of(arguments[i].storage().unsafeGetStorageImpl()));
  }
  auto name = next_storage(sizes.size());
  put<uint32_t>(queue_, sizes.size());
  std::vector<c10::Storage> made;
  for (size_t i = 0; i < sizes.size(); i++) {
    put(queue_, recording.results_made[i]);
    put(queue_, name + i);
    made.push_back(storage(name + i, sizes[i]));
  }
  issued({});
  statistics.operations += recording.lines.size() - 1;
  statistics.replays++;
  std::vector<Tensor> results;
  for (auto& form : recording.results) {
    auto& storage = form.of == Form::kMade ? made[form.place] : form.of == Form::kParameter ? arguments[form.place].storage() : form.outside;
    results.push_back(tensor_in(storage, form.layout));
  }
  flush();
  return results;
}

}  // namespace tessera
