// Which operators can run on a part of the rows at each server, and what their results are then: rows too, or a sum that is to be made.
//
// Without a rule an operator runs whole at every server, which is always right. A rule never decides by values, only by shapes, plain
// arguments and where storages are. It names for each argument the dimension that is divided; what is whole is cut, and what is divided
// otherwise is made whole and then cut.
#include "server/question.h"

namespace tessera {

namespace {

using Stack = torch::jit::Stack;
using Rule = std::function<bool(Question&)>;

// Divides the arguments of an operator that takes elements apart. Dimensions are counted from the last one, as broadcasting does.
bool elements(Question& q) {
  if (!q.found()) return false;
  for (size_t i = 0; i < q.slots(); i++) {
    int by = q.dimensions(i) + q.from_last();
    if (by >= 0 && !q.take(i, by)) return false;
  }
  return true;
}

bool pointwise(Question& q) {
  if (!elements(q)) return false;
  for (size_t i = 0; i < q.asked.of.outcomes.size(); i++) {
    int by = int(q.asked.of.outcomes[i].layout.sizes.size()) + q.from_last();
    if (by < 0) return false;
    q.result(i, by);
  }
  return true;
}

// A result that is a mean of each server's rows counts as much as those rows are of all.
void weigh(Question& q) {
  q.decision.after = [fraction = q.fraction()](Stack& stack) {
    for (auto& value : stack) if (value.isTensor() && value.toTensor().defined()) value.toTensor().mul_(fraction);
  };
}

// Rows of the first matrix, rows of the second of a batch, or the dimension that is summed over. `first` is the number of the argument.
Rule product(int first, int dimensions, int bias) {
  return [=](Question& q) {
    int a = q.slot(first), b = q.slot(first + 1), c = bias < 0 ? -1 : q.slot(bias);
    if (a < 0 || b < 0 || q.dimensions(a) != dimensions || q.dimensions(b) != dimensions) return false;
    int row = dimensions - 2, column = dimensions - 1;
    if (!(q.found() && (q.anchor == a || q.anchor == b)) && !q.begin(a, 0)) return false;
    bool batch = dimensions == 3 && q.dim == 0;
    if (batch) {
      if (!q.take(a, 0) || !q.take(b, 0)) return false;
      q.result(0, 0);
    } else if (q.anchor == a && q.dim == row) {
      q.cut(a, row);
      q.result(0, row);
    } else if (q.anchor == b && q.dim == column) {
      q.cut(b, column);
      q.result(0, column);
    } else {
      q.cut(a, column), q.cut(b, row);
      q.result(0, kSum);
      // What is added is added once.
      if (c >= 0 && q.asked.own != 0) q.decision.before = [](Stack& stack) { stack[3] = at::Scalar(0); };
      return q.asked.of.outcomes.size() == 1;
    }
    if (c < 0) return true;
    int by = q.decision.results[0] - dimensions + q.dimensions(c);
    return by < 0 || q.take(c, by);
  };
}

// Along some dimensions only: rows are left alone as long as they are none of those.
struct Along {
  int argument;       // that names them, -1: all dimensions
  int keep;           // that says whether they stay, -1: they do, -2: they do not
  enum { kOther, kSums, kMeans } adds = kOther;
};

Rule along(Along how) {
  return [=](Question& q) {
    if (!q.found()) return false;
    int count = q.dimensions(q.anchor);
    std::vector<bool> reduced(count, false);
    bool any = false;
    auto name = [&](int64_t dim) { reduced.at(dim < 0 ? dim + count : dim) = true, any = true; };
    if (how.argument >= 0) {
      auto& named = q.plain(how.argument);
      if (named.isInt()) name(named.toInt());
      else if (named.isIntList()) for (auto dim : named.toIntVector()) name(dim);
    }
    if (!any) reduced.assign(count, true);
    bool keeps = how.keep == -1 || (how.keep >= 0 && q.plain(how.keep).toBool());
    for (size_t i = 0; i < q.slots(); i++) if (q.dimensions(i) != count || !q.take(i, q.dim)) return false;
    int by = q.dim;
    if (reduced[q.dim]) {
      if (how.adds == Along::kOther) return false;
      by = kSum;
      if (how.adds == Along::kMeans) weigh(q);
    } else if (!keeps) {
      by -= std::count(reduced.begin(), reduced.begin() + q.dim, true);
    }
    for (size_t i = 0; i < q.asked.of.outcomes.size(); i++) q.result(i, by);
    return true;
  };
}

// Each sample by itself: the first dimension of these arguments, which have equally many.
Rule samples(std::vector<int> arguments, bool begins, std::vector<int> results) {
  return [=](Question& q) {
    int first = q.slot(arguments[0]);
    if (first < 0) return false;
    bool known = q.found() && q.dim == 0 && std::count(arguments.begin(), arguments.end(), q.asked.seen.argument[q.anchor]);
    if (!known && !(begins && q.begin(first, 0))) return false;
    for (int argument : arguments) {
      int slot = q.slot(argument);
      if (slot < 0) continue;
      if (q.dimensions(slot) != q.dimensions(first) || q.layout(slot).sizes[0] != q.size()) return false;
      q.cut(slot, 0);
    }
    for (size_t i = 0; i < results.size(); i++) q.result(i, results[i]);
    return true;
  };
}

Rule images(std::vector<int> arguments) {
  return [=](Question& q) { return q.dimensions(q.slot(0)) == 4 && samples(arguments, false, {0, 0})(q); };
}

Rule with_batch_size(Rule rule, int argument) {
  return [=](Question& q) {
    if (!rule(q)) return false;
    int64_t own = q.plain(argument).toInt() / q.decision.units * q.asked.division.part(q.decision.units, q.asked.own);
    q.decision.before = [=](Stack& stack) { stack[argument] = own; };
    return true;
  };
}

// Only for inputs with a batch dimension: as many dimensions as the weight.
Rule batched(Rule rule, int input, int weight) {
  return [=](Question& q) { return q.dimensions(q.slot(input)) == q.dimensions(q.slot(weight)) && rule(q); };
}

// The normalised dimensions are the last ones.
bool layer_norm(Question& q) {
  if (!q.found() || q.asked.seen.argument[q.anchor] != 0) return false;
  if (q.dim >= q.dimensions(q.anchor) - int(q.plain(1).toIntVector().size())) return false;
  q.cut(q.anchor, q.dim);
  for (size_t i = 0; i < 3; i++) q.result(i, q.dim);
  return true;
}

bool layer_norm_backward(Question& q) {
  int input = q.slot(1);
  if (!q.found() || q.dim >= q.dimensions(input) - int(q.plain(2).toIntVector().size())) return false;
  for (int argument : {0, 1, 3, 4}) {
    int slot = q.slot(argument);
    if (slot < 0 || q.layout(slot).sizes[q.dim] != q.size()) return false;
    q.cut(slot, q.dim);
  }
  q.result(0, q.dim), q.result(1, kSum), q.result(2, kSum);
  return true;
}

bool embedding(Question& q) {
  int weight = q.slot(0), indices = q.slot(1);
  if (!(q.found() && q.anchor == indices) && !q.begin(indices, 0)) return false;
  q.cut(indices, q.dim);
  q.result(0, q.dim);
  return weight != indices;
}

bool embedding_backward(Question& q) {
  int indices = q.slot(1);
  if (!q.found() || q.plain(4).toBool() || q.dim >= q.dimensions(indices)) return false;
  q.cut(q.slot(0), q.dim), q.cut(indices, q.dim);
  q.result(0, kSum);
  return q.layout(indices).sizes[q.dim] == q.size() && q.layout(q.slot(0)).sizes[q.dim] == q.size();
}

enum Reduction { kNone = 0, kMean = 1, kTotal = 2 };

Rule loss(int reduction) {
  return [=](Question& q) {
    auto how = q.plain(reduction).toInt();
    if (how == kNone) return pointwise(q);
    if (!elements(q)) return false;
    q.result(0, kSum);
    if (how == kMean) weigh(q);
    return true;
  };
}

Rule loss_backward(int reduction) {
  return [=](Question& q) {
    if (!pointwise(q)) return false;
    if (q.plain(reduction).toInt() == kMean) weigh(q);
    return true;
  };
}

// The sum of the losses and of their weights are both made, and divided only then.
bool likelihood(Question& q) {
  int input = q.slot(0), target = q.slot(1);
  if (!q.found() || q.anchor != input || q.dim != 0 || q.dimensions(input) < 2) return false;
  q.cut(input, 0), q.cut(target, 0);
  if (q.layout(target).sizes.empty() || q.layout(target).sizes[0] != q.size()) return false;
  auto how = q.plain(3).toInt();
  q.result(0, how == kNone ? 0 : kSum), q.result(1, how == kNone ? kWhole : kSum);
  if (how == kMean) {
    q.decision.divide = true;
    q.decision.before = [](Stack& stack) { stack[3] = int64_t(kTotal); };
  }
  return true;
}

bool likelihood_backward(Question& q) {
  int input = q.slot(1), target = q.slot(2), grad = q.slot(0);
  if (!q.found() || q.dim != 0 || q.dimensions(input) < 2 || q.layout(input).sizes[0] != q.size()) return false;
  q.cut(input, 0), q.cut(target, 0);
  if (q.dimensions(grad) > 0) q.cut(grad, 0);
  q.result(0, 0);
  return true;
}

bool concatenate(Question& q) {
  if (!q.found()) return false;
  int count = q.dimensions(q.anchor);
  auto dim = q.plain(1).toInt();
  if ((dim < 0 ? dim + count : dim) == q.dim) return false;
  for (size_t i = 0; i < q.slots(); i++) {
    if (q.dimensions(i) != count || q.layout(i).sizes[q.dim] != q.size()) return false;
    q.cut(i, q.dim);
  }
  q.result(0, q.dim);
  return true;
}

// Each sample by itself, with its own part of the mask where that has one.
Rule attention(std::vector<int> arguments, int mask) {
  return [=](Question& q) {
    if (!q.found(arguments) || q.dim != 0) return false;
    for (int argument : arguments) if (!q.take(q.slot(argument), 0)) return false;
    int slot = q.slot(mask);
    if (slot >= 0 && q.dimensions(slot) == 4 && !q.take(slot, 0)) return false;
    for (size_t i = 0; i < q.decision.results.size(); i++) q.result(i, 0);
    return true;
  };
}

bool triangle(Question& q) { return q.found() && q.dim < q.dimensions(q.anchor) - 2 && pointwise(q); }

const std::unordered_map<std::string, Rule>& rules() {
  static const std::unordered_map<std::string, Rule> known = [] {
    std::unordered_map<std::string, Rule> made;
    auto add = [&](std::initializer_list<const char*> names, Rule rule) { for (auto* name : names) made["aten::" + std::string(name)] = rule; };
    // Of one element each, without PyTorch's tag that says so.
    add({"copy_", "_to_copy", "fill_.Scalar", "fill_.Tensor", "zero_", "masked_fill_.Scalar", "masked_fill_.Tensor", "masked_fill.Tensor",
         "hardtanh_backward", "leaky_relu_backward", "elu_backward", "softplus_backward", "softshrink_backward", "hardshrink_backward",
         "hardsigmoid_backward", "hardswish", "hardswish_", "hardswish_backward", "mish_backward", "log_sigmoid_backward"}, pointwise);
    add({"mm"}, product(0, 2, -1));
    add({"addmm"}, product(1, 2, 0));
    add({"bmm"}, product(0, 3, -1));
    add({"baddbmm"}, product(1, 3, 0));
    add({"_softmax", "_log_softmax", "cumsum", "cumprod", "sort"}, along({1, -1}));
    add({"_softmax_backward_data", "_log_softmax_backward_data", "topk"}, along({2, -1}));
    add({"sum.dim_IntList"}, along({1, 2, Along::kSums}));
    add({"mean.dim"}, along({1, 2, Along::kMeans}));
    add({"sum"}, along({-1, -2, Along::kSums}));
    add({"mean"}, along({-1, -2, Along::kMeans}));
    add({"amax", "amin", "argmax", "argmin", "any.dim", "all.dim", "prod.dim_int", "max.dim", "min.dim", "logsumexp"}, along({1, 2}));
    add({"var.correction", "std.correction", "var_mean.correction", "std_mean.correction"}, along({1, 3}));
    add({"linalg_vector_norm"}, along({2, 3}));
    add({"convolution"}, batched(samples({0}, true, {0}), 0, 1));
    add({"convolution_backward"}, batched(samples({0, 1}, false, {0, kSum, kSum}), 1, 2));
    add({"max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "adaptive_max_pool2d", "upsample_nearest2d", "upsample_bilinear2d"},
        images({0}));
    add({"avg_pool2d_backward", "_adaptive_avg_pool2d_backward"}, images({0, 1}));
    add({"max_pool2d_with_indices_backward"}, images({0, 1, 7}));
    add({"native_layer_norm"}, layer_norm);
    add({"native_layer_norm_backward"}, layer_norm_backward);
    add({"native_group_norm"}, with_batch_size([](Question& q) {
          return q.found() && q.dim == 0 && q.asked.seen.argument[q.anchor] == 0 &&
                 (q.cut(q.anchor, 0), q.result(0, 0), q.result(1, 0), q.result(2, 0), true);
        }, 3));
    add({"native_group_norm_backward"}, with_batch_size([](Question& q) {
          if (!q.found() || q.dim != 0) return false;
          for (int argument : {0, 1, 2, 3}) if (int slot = q.slot(argument); slot < 0 || !q.take(slot, 0)) return false;
          q.result(0, 0), q.result(1, kSum), q.result(2, kSum);
          return true;
        }, 5));
    add({"embedding"}, embedding);
    add({"embedding_dense_backward"}, embedding_backward);
    add({"mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"}, loss(2));
    add({"binary_cross_entropy"}, loss(3));
    add({"mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "soft_margin_loss_backward"}, loss_backward(3));
    add({"binary_cross_entropy_backward"}, loss_backward(4));
    add({"nll_loss_forward", "nll_loss2d_forward"}, likelihood);
    add({"nll_loss_backward", "nll_loss2d_backward"}, likelihood_backward);
    add({"_scaled_dot_product_flash_attention_for_cpu"}, attention({0, 1, 2}, 5));
    add({"_scaled_dot_product_flash_attention_for_cpu_backward"}, attention({0, 1, 2, 3, 4, 5}, 8));
    add({"cat"}, concatenate);
    add({"tril", "triu"}, triangle);
    return made;
  }();
  return known;
}

const Rule* rule_of(const c10::OperatorHandle& op) {
  static const Rule of_elements = pointwise;
  auto& name = op.schema().operator_name();
  auto found = rules().find(name.overload_name.empty() ? name.name : name.name + "." + name.overload_name);
  if (found != rules().end()) return &found->second;
  return op.hasTag(at::Tag::pointwise) ? &of_elements : nullptr;
}

bool can_be_summed(const Executor::Outcome& outcome) {
  auto type = outcome.layout.type;
  // Of these every backend of torch.distributed makes sums.
  static constexpr std::array types{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong};
  if (outcome.layout.flags || std::find(types.begin(), types.end(), type) == types.end()) return false;
  int64_t elements = 1;
  for (auto size : outcome.layout.sizes) elements *= size;
  return outcome.bytes == elements * c10::elementSize(type);
}

}  // namespace

// Whatever a rule says holds only if every view that it divides reaches over all rows of its storage, and the rest stays within each.
bool divide_rows(const Asked& asked, Decision& decision) {
  auto* rule = rule_of(asked.of.op);
  if (!rule || asked.of.now) return false;
  Question q(asked, decision);
  if (!(*rule)(q)) return false;
  for (size_t i = 0; i < q.slots(); i++) {
    int dim = decision.dims[i];
    if (dim >= 0 && q.layout(i).sizes[dim] % decision.units) return false;
    bool written = asked.seen.written[i];
    for (size_t j = 0; j < q.slots(); j++) written |= asked.seen.written[j] && asked.placed[j] == asked.placed[i];
    if (written && (dim < 0 || row_dimension(q.layout(i), decision.units, asked.placed[i]->bytes) != dim)) return false;
  }
  for (size_t i = 0; i < decision.results.size(); i++) {
    auto& outcome = asked.of.outcomes[i];
    if (outcome.kind != kNew) continue;
    if (decision.results[i] >= 0 && row_dimension(outcome.layout, decision.units, outcome.bytes) != decision.results[i]) return false;
    if (decision.results[i] == kSum && !can_be_summed(outcome)) return false;
  }
  return true;
}

}  // namespace tessera
