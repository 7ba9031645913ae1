// Arguments of calls as keys: the other direction of wire/codec.h.
#include "program/operator.h"

namespace tessera {

static void encode_tensor(Bytes& key, Slots& slots, const Tensor& tensor, const Operator& op) {
  if (!tensor.defined()) return put<char>(key, 'U');
  auto* inside = tensor.unsafeGetTensorImpl();
  if (!inside->device().is_privateuseone()) {
    TORCH_CHECK(inside->device().is_cpu(), "expected tensors of one device, found ", kDevice, " and ", tensor.device());
    if (tensor.dim() == 0 && tensor.layout() == at::kStrided) {
      key += 'S';
      put<uint8_t>(key, static_cast<uint8_t>(tensor.scalar_type()));
      put<uint8_t>(key, inside->is_wrapped_number());
      slots.changing += number_in(tensor);
      if (client().capturing() && !inside->is_wrapped_number()) client().records_number(tensor);
      return;
    }
    TORCH_CHECK(op.mixes, "Expected all tensors to be on the same device, but found at least two devices, ", kDevice, " and cpu!");
    slots.uploaded.push_back(upload(tensor));
    inside = slots.uploaded.back().unsafeGetTensorImpl();
  }
  TORCH_CHECK_NOT_IMPLEMENTED(inside->layout() == at::kStrided, "sparse tensors are not supported on a virtual card");
  key += 'T';
  put<uint8_t>(key, static_cast<uint8_t>(c10::typeMetaToScalarType(inside->dtype())));
  put<uint8_t>(key, (inside->is_wrapped_number() ? kWrappedNumber : 0) | (inside->is_conj() ? kConjugate : 0) |
                        (inside->is_neg() ? kNegative : 0));
  put<uint8_t>(key, inside->dim());
  put_numbers(key, inside->sizes());
  put_numbers(key, inside->strides());
  put<int64_t>(key, inside->storage_offset());
  slots.tensors.push_back(inside);
}

void encode(Bytes& key, Slots& slots, const IValue& value, bool scalar, const Operator& op) {
  if (value.isTensor()) return encode_tensor(key, slots, value.toTensor(), op);
  if (value.isNone()) return put<char>(key, 'N');
  if (value.isInt()) {
    key += scalar && !op.plain ? 'I' : 'i';
    return put(scalar && !op.plain ? slots.changing : key, value.toInt());
  }
  if (value.isDouble()) {
    key += op.plain ? 'd' : 'D';
    return put(op.plain ? key : slots.changing, value.toDouble());
  }
  if (value.isBool()) {
    key += 'b';
    return put<uint8_t>(key, value.toBool());
  }
  if (value.isIntList()) {
    auto list = value.toIntVector();
    key += 'L';
    put<uint32_t>(key, list.size());
    return put_numbers(key, list);
  }
  if (value.isTensorList()) {
    auto list = value.toTensorList();
    key += 'M';
    put<uint32_t>(key, list.size());
    for (size_t i = 0; i < list.size(); i++) encode_tensor(key, slots, list.get(i), op);
    return;
  }
  if (value.isDevice()) return put<char>(key, 'V');
  if (value.isString()) {
    key += 's';
    return put_text(key, value.toStringRef());
  }
  if (value.isComplexDouble()) {
    key += 'c';
    put(key, value.toComplexDouble().real());
    return put(key, value.toComplexDouble().imag());
  }
  if (value.isDoubleList()) {
    auto list = value.toDoubleVector();
    key += 'l';
    put<uint32_t>(key, list.size());
    key.append(reinterpret_cast<const char*>(list.data()), 8 * list.size());
    return;
  }
  if (value.isBoolList()) {
    auto list = value.toBoolList();
    key += 'k';
    put<uint32_t>(key, list.size());
    for (bool element : list) put<uint8_t>(key, element);
    return;
  }
  if (value.isSymInt()) {
    key += 'i';
    return put<int64_t>(key, value.toSymInt().guard_int(__FILE__, __LINE__));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(value.isList(), "an argument of kind ", value.tagKind(), " is not supported on a virtual card");
  auto kind = value.toList().elementType()->kind();
  auto list = value.toListRef();
  TORCH_CHECK_NOT_IMPLEMENTED(kind == c10::TypeKind::OptionalType || list.empty() || list[0].isScalar(),
                              "a list of ", value.toList().elementType()->str(), " is not supported on a virtual card");
  key += kind == c10::TypeKind::OptionalType ? 'O' : 'P';
  put<uint32_t>(key, list.size());
  for (auto& element : list) encode(key, slots, element, true, op);
}

}  // namespace tessera
