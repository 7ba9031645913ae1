// Arguments of operators as bytes. The bytes of a call are the key of the program's cache and the server's template at once.
//
// What changes from call to call without changing shapes (floating point and Scalar arguments, numbers that are tensors) goes to
// `changing` and is sent each time; all else is part of the key.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/empty.h>

#include "wire/wire.h"

namespace tessera {

using at::Tensor;
using c10::IValue;

inline Tensor make_tensor(c10::Storage storage, c10::DispatchKeySet keys, c10::ScalarType type, c10::IntArrayRef sizes,
                          c10::IntArrayRef strides, int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, c10::scalarTypeToTypeMeta(type));
  auto* inside = tensor.unsafeGetTensorImpl();
  if (offset) inside->set_storage_offset(offset);
  if (sizes.size() != 1 || sizes[0] != 0) inside->set_sizes_and_strides(sizes, strides);
  return tensor;
}

// A number that is a tensor on the processor.
inline Bytes number_in(const Tensor& tensor) {
  Bytes number(kScalar, '\0');
  Tensor plain = tensor.resolve_conj().resolve_neg();
  std::memcpy(number.data(), plain.const_data_ptr(), plain.element_size());
  return number;
}

// Reads arguments back. `tensor(layout)` makes the tensor of the next slot.
template <class Make>
class Decoder {
 public:
  Decoder(Reader& key, Reader& changing, c10::Device device, Make& tensor)
      : key_(key), changing_(changing), device_(device), tensor_(tensor) {}

  IValue value() {
    char tag = key_.get<char>();
    switch (tag) {
      case 'T': case 'S': case 'U': return tensor(tag);
      case 'N': return IValue();
      case 'i': return key_.get<int64_t>();
      case 'I': return changing_.get<int64_t>();
      case 'd': return key_.get<double>();
      case 'D': return changing_.get<double>();
      case 'b': return key_.get<uint8_t>() != 0;
      case 'c': { auto real = key_.get<double>(); return c10::complex<double>(real, key_.get<double>()); }
      case 's': return key_.text();
      case 'V': return device_;
      default: return list(tag);
    }
  }

 private:
  Reader& key_;
  Reader& changing_;
  c10::Device device_;
  Make& tensor_;
  Layout layout_;

  Tensor tensor(char tag) {
    if (tag == 'U' || tag == 'N') return Tensor();
    if (tag == 'S') return number();
    TORCH_CHECK(tag == 'T', "an argument of a kind that is not known");
    read_layout(key_, layout_);
    Tensor made = tensor_(layout_);
    if (layout_.flags & kWrappedNumber) made.unsafeGetTensorImpl()->set_wrapped_number(true);
    if (layout_.flags & kConjugate) made._set_conj(true);
    if (layout_.flags & kNegative) made._set_neg(true);
    return made;
  }
  Tensor number() {
    auto type = scalar_type(key_.get<uint8_t>());
    auto wrapped = key_.get<uint8_t>() != 0;
    Tensor made = at::empty({}, at::TensorOptions(type));
    std::memcpy(made.mutable_data_ptr(), changing_.take(kScalar), made.element_size());
    if (wrapped) made.unsafeGetTensorImpl()->set_wrapped_number(true);
    return made;
  }
  IValue list(char tag) {
    TORCH_CHECK(std::strchr("LlkMOP", tag) && tag, "an argument of a kind that is not known");
    size_t count = key_.count();
    if (tag == 'L') {
      std::vector<int64_t> numbers;
      key_.numbers(numbers, count);
      return numbers;
    }
    if (tag == 'l') {
      std::vector<double> numbers(count);
      std::memcpy(numbers.data(), key_.take(8 * count), 8 * count);
      return numbers;
    }
    if (tag == 'k') {
      c10::List<bool> list;
      for (size_t i = 0; i < count; i++) list.push_back(key_.get<uint8_t>() != 0);
      return list;
    }
    if (tag == 'M') {
      c10::List<Tensor> list;
      for (size_t i = 0; i < count; i++) list.push_back(tensor(key_.get<char>()));
      return list;
    }
    if (tag == 'O') {
      c10::List<std::optional<Tensor>> list;
      for (size_t i = 0; i < count; i++) {
        char element = key_.get<char>();
        auto made = tensor(element);
        list.push_back(element == 'N' ? std::nullopt : std::optional<Tensor>(made));
      }
      return list;
    }
    c10::impl::GenericList list(c10::NumberType::get());
    for (size_t i = 0; i < count; i++) {
      char element = key_.get<char>();
      TORCH_CHECK(std::strchr("iIdDbc", element) && element, "a number of a kind that is not known");
      list.push_back(plain(element));
    }
    return list;
  }
  IValue plain(char tag) {
    switch (tag) {
      case 'i': return key_.get<int64_t>();
      case 'I': return changing_.get<int64_t>();
      case 'd': return key_.get<double>();
      case 'D': return changing_.get<double>();
      case 'b': return key_.get<uint8_t>() != 0;
      default: { auto real = key_.get<double>(); return c10::complex<double>(real, key_.get<double>()); }
    }
  }
};

}  // namespace tessera
