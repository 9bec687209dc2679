#include "load/weight_store.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"
#include "load/nibble_blocks.h"
#include "load/quantisation.h"
#include "nn/input_records.h"
#include "nn/weight_key.h"
#include "ops/pack_rows.h"
#include "ops/packing.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"
#include "tensor/work_count.h"

namespace tessera::load {
namespace {

using nn::Cut;
using nn::WeightRequest;
using ops::DType;
using tensor::Device;
using tensor::Shape;
using tensor::Storage;
using tensor::Tensor;

}  // namespace

struct WeightStore::Shelf {
  using Tracker = std::shared_ptr<tensor::MemoryTracker>;
  using Value = std::shared_ptr<const void>;

  struct Slot {
    std::mutex packing;  // held while packing, so that each weight is packed once
    std::weak_ptr<const void> value;
    int64_t bytes = 0;
    // The same value with a separate owner for each tracker.
    std::map<const tensor::MemoryTracker*, std::weak_ptr<const void>> shares;

    std::pair<Value, bool> share_for(const Tracker& memory, const Value& packed, bool rank);
  };

  std::shared_ptr<Slot> slot(const std::string& key) {
    const std::lock_guard lock(mutex);
    if (slots.size() >= next_sweep) {
      // The lock makes earlier writes visible; no other thread gets a slot meanwhile.
      std::erase_if(slots, [](const auto& item) {
        const std::unique_lock idle(item.second->packing, std::try_to_lock);
        return idle && item.second.use_count() == 1 && item.second->value.expired();
      });
      next_sweep = 2 * slots.size() + 256;
    }
    auto& slot = slots[key];
    if (!slot) slot = std::make_shared<Slot>();
    return slot;
  }

  template <class T, class Make>
  std::shared_ptr<T> share(const std::string& key, Make make) {
    const std::shared_ptr<Slot> slot = this->slot(key);
    const std::lock_guard lock(slot->packing);
    const Tracker rank = tensor::current_scope().memory;
    std::erase_if(slot->shares, [](const auto& share) { return share.second.expired(); });
    if (const auto value = slot->value.lock())
      return std::static_pointer_cast<T>(
          std::const_pointer_cast<void>(slot->share_for(rank, value, true).first));
    tensor::Scope counting = tensor::current_scope();
    counting.memory = std::make_shared<tensor::MemoryTracker>(rank);
    const tensor::BindScope bind(counting);
    std::shared_ptr<T> weight = make();
    tensor::count_work();
    const int64_t bytes = counting.memory->current(tensor::MemoryClass::weights);
    // Each holder is charged for the value, so the packing rank's own charge is removed while the
    // value lives.
    if (rank) rank->add(tensor::MemoryClass::weights, -bytes);
    T* const packed = weight.get();
    const Value value(packed, [weight = std::move(weight), rank, bytes](const void*) mutable {
      weight.reset();
      if (rank) rank->add(tensor::MemoryClass::weights, bytes);
    });
    slot->value = value;
    slot->bytes = bytes;
    slot->shares.clear();
    return std::static_pointer_cast<T>(
        std::const_pointer_cast<void>(slot->share_for(rank, value, true).first));
  }

  // The value in use under a key; null: none.
  template <class T>
  std::shared_ptr<T> value_of(const std::string& key) {
    std::shared_ptr<Slot> slot;
    {
      const std::lock_guard lock(mutex);
      const auto it = slots.find(key);
      if (it == slots.end()) return nullptr;
      slot = it->second;
    }
    const std::lock_guard lock(slot->packing);
    return std::static_pointer_cast<T>(std::const_pointer_cast<void>(slot->value.lock()));
  }

  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Slot>> slots;
  size_t next_sweep = 256;
};

// Counts the value for another rank, and for the parent trackers unless another rank of theirs
// already holds the value. Second: true if `memory` did not hold the value.
std::pair<WeightStore::Shelf::Value, bool> WeightStore::Shelf::Slot::share_for(
    const Tracker& memory, const Value& packed, bool rank) {
  if (!memory) return {packed, true};
  if (const auto it = shares.find(memory.get()); it != shares.end())
    if (Value share = it->second.lock()) return {std::move(share), false};
  const auto [above, lacked] = share_for(memory->whole(), packed, false);
  if (!lacked && !rank) return {above, false};
  memory->add_shared(tensor::MemoryClass::weights, bytes);
  Value share(above.get(), [above = above, memory, bytes = bytes](const void*) mutable {
    memory->add_shared(tensor::MemoryClass::weights, -bytes);
    above.reset();  // a cached share must not keep the value alive
  });
  shares[memory.get()] = share;
  return {share, lacked};
}

namespace {

/// Reusable buffers for tensors before packing, so that the system need not fill new pages with
/// zeros. Keeps two buffers, the number for a pair of weights.
class ReadBuffers : public std::enable_shared_from_this<ReadBuffers> {
 public:
  std::shared_ptr<Storage> lend(int64_t bytes) {
    std::shared_ptr<Storage> buffer;
    {
      const std::lock_guard lock(mutex_);
      const auto fits = std::find_if(spare_.begin(), spare_.end(), [&](const auto& spare) {
        return spare && spare->bytes() >= bytes;
      });
      std::swap(buffer, fits == spare_.end() ? spare_.front() : *fits);
    }
    if (!buffer || buffer->bytes() < bytes) {
      buffer.reset();  // free first, before another is allocated
      const tensor::Uncounted aside(tensor::Counts::work);
      buffer = Storage::allocate(bytes, Device::cpu, tensor::MemoryClass::weights);
    }
    Storage* const storage = buffer.get();
    return {storage, [self = shared_from_this(), buffer = std::move(buffer)](Storage*) mutable {
              self->take_back(std::move(buffer));
            }};
  }

 private:
  void take_back(std::shared_ptr<Storage> buffer) {
    const std::lock_guard lock(mutex_);
    const auto size = [](const auto& b) { return b ? b->bytes() : -1; };
    if (size(spare_.front()) < buffer->bytes()) std::swap(spare_.front(), buffer);
    if (size(spare_.back()) < size(spare_.front())) std::swap(spare_.front(), spare_.back());
  }
  std::mutex mutex_;
  std::array<std::shared_ptr<Storage>, 2> spare_;  // ascending by size
};

class StoredWeights : public nn::Weights {
 public:
  StoredWeights(TensorSet tensors, std::shared_ptr<WeightStore::Shelf> shelf, Device device)
      : tensors_(std::move(tensors)), shelf_(std::move(shelf)), device_(device) {}

  bool has(const std::string& name) const override { return tensors_.has(name); }
  bool smoothed(const std::string& weight) const override {
    return tensors_.has(nn::input_scale_of(weight));
  }

  nn::FetchedWeight fetch(const WeightRequest& request) const override {
    switch (request.form) {
      case Form::stored:
      case Form::table: return {.tensor = stored_tensor(request.name, request.shape)};
      case Form::vector: return {.tensor = widened(request)};
      case Form::matrix: return {.packed = packed_matrix(request)};
      case Form::paired: return {.packed = packed_pair(request)};
      case Form::conv: return packed_filter(request);
    }
    return {};
  }

 private:
  Tensor stored_tensor(const std::string& name, const Shape& shape) const {
    const TensorFile& file = checked(name, shape);
    const DType dtype = file.dtype(name);
    const auto storage = shelf_->share<Storage>(key("stored", name, "", dtype), [&] {
      if (device_ != Device::cpu) return there(file.get(name));
      const int64_t bytes = file.entry(name).bytes();
      if (const auto there = mapped(name, "", bytes)) return counted(*there);
      auto copy = Storage::allocate(bytes, Device::cpu, tensor::MemoryClass::weights);
      file.read(name, copy->data());
      return copy;
    });
    return Tensor::over(storage, 0, shape, dtype);
  }

  // The file with a tensor, checked for this shape.
  const TensorFile& checked(const std::string& name, const Shape& shape) const {
    const TensorFile& file = tensors_.file(name);
    const TensorEntry& entry = file.entry(name);
    require(
        entry.has_sizes({shape.begin(), shape.end()}), ErrorCode::model,
        "{}: tensor {} has the shape [{}]; expected {}: config and weights do not belong together",
        file.path(), base::printable(name), fmt::join(entry.sizes, ", "), shape.str());
    return file;
  }

  ops::Weight packed_matrix(const WeightRequest& r) const {
    const std::string& name = r.name;
    const nn::Cut& cut = r.cut;
    const int64_t n = r.shape[0], k = r.shape[1];
    const ops::WeightForm form = packed_as(tensors_, name, r.compute, k);
    check_matrix(name, r.shape, form.dtype);
    return shelf_->share<ops::Weight::element_type>(key("matrix", name, "", form, cut), [&] {
      if (in_rows(name, "") && reads_rows(name, form, cut))
        return ops::pack_rows(rows_of(name), {}, form);
      return in_rows(name, "") ? ops::pack_weight(stored(name, form, cut), form, device_)
                               : packed(name, "", n, k, form, cut);
    });
  }

  ops::Weight packed_pair(const WeightRequest& r) const {
    const std::string& gate = r.name;
    const std::string& up = r.second;
    const nn::Cut& cut = r.cut;
    const int64_t n = r.shape[0], k = r.shape[1];
    const ops::WeightForm form = pair_packed_as(tensors_, gate, up, r.compute, k);
    check_matrix(gate, r.shape, form.dtype);
    check_matrix(up, r.shape, form.dtype);
    return shelf_->share<ops::Weight::element_type>(key("paired", gate, up, form, cut), [&] {
      if (in_rows(gate, up) && reads_rows(gate, form, cut) && reads_rows(up, form, cut))
        return ops::pack_rows(rows_of(gate), rows_of(up), form);
      return in_rows(gate, up) ? ops::pack_paired_weight(stored(gate, form, cut),
                                                         stored(up, form, cut), form, device_)
                               : packed(gate, up, n, k, form, cut);
    });
  }

  nn::FetchedWeight packed_filter(const WeightRequest& r) const {
    const TensorFile& w = floats(r.name, r.shape);
    const TensorFile* b = r.second.empty() ? nullptr : &floats(r.second, {r.shape[0]});
    const auto packed = [&](const auto& pack) {
      using Filter = typename decltype(pack(Tensor(), Tensor(), r.compute, device_))::element_type;
      return shelf_->share<Filter>(key("conv", r.name, r.second, r.compute), [&] {
        return pack(read(w, r.name), b ? read(*b, r.second) : Tensor(), r.compute, device_);
      });
    };
    if (r.shape.rank() == 5) return {.frames = packed(ops::pack_frames)};
    return {.filter = packed([](auto&&... args) { return ops::pack_conv(args...); })};
  }

  Tensor widened(const WeightRequest& r) const {
    const std::string& name = r.name;
    const nn::Cut& cut = r.cut;
    const TensorFile& file = floats(name, r.shape);
    const Shape shape = cut.of(r.shape);
    const auto storage = shelf_->share<Storage>(key("vector", name, "", DType::f32, cut), [&] {
      const std::vector<float> values = nn::taken(read(file, name), cut).to_floats();
      if (device_ != Device::cpu) return there(Tensor::from(std::span<const float>(values), shape));
      const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
      auto copy = Storage::allocate(bytes, tensor::Device::cpu, tensor::MemoryClass::weights);
      if (!values.empty()) std::memcpy(copy->data(), values.data(), values.size() * sizeof(float));
      return copy;
    });
    return Tensor::over(storage, 0, shape, DType::f32);
  }

  // Reads a checked tensor, or shares the result of get() while in use.
  Tensor read(const TensorFile& file, const std::string& name) const {
    const TensorEntry& entry = file.entry(name);
    std::shared_ptr<Storage> buffer;
    if (device_ == Device::cpu)
      buffer = shelf_->value_of<Storage>(key("stored", name, "", file.dtype(name)));
    if (!buffer) buffer = mapped(name, "", entry.bytes());
    if (!buffer) {
      buffer = buffers_->lend(entry.bytes());
      file.read(name, buffer->data());
    }
    return Tensor::over(std::move(buffer), 0, Shape(entry.sizes), file.dtype(name));
  }

  // Accepts floats, or for products in i8 integers with row scales.
  void check_matrix(const std::string& name, const Shape& shape, DType compute) const {
    if (!is_quantised(tensors_, name)) return (void)floats(name, shape);
    const StoredShapes shapes = stored_shapes(tensors_, name, shape[0], shape[1]);
    const TensorFile& file = checked(name, shapes.values);
    require(compute == DType::i8, ErrorCode::model,
            "{}: tensor {} is quantised ({}), and this part of the model computes with {}; its "
            "config.json does not say that it is read so: quantise the folder again",
            file.path(), base::printable(name), file.entry(name).dtype, name_of(compute));
    if (shapes.within) return;
    const TensorFile& scales = checked(scales_of(name), shapes.scales);
    require(scales.dtype(scales_of(name)) == shapes.scales_dtype, ErrorCode::model,
            "{}: tensor {} has the dtype {}; expected {}", scales.path(),
            base::printable(scales_of(name)), name_of(scales.dtype(scales_of(name))),
            name_of(shapes.scales_dtype));
  }

  // Takes a cut of a checked matrix. A cut row keeps the scale of the whole row, as in a folder
  // that holds it quantised.
  ops::StoredMatrix stored(const std::string& name, const ops::WeightForm& form,
                           const Cut& cut) const {
    const TensorFile& file = tensors_.file(name);
    if (form.int4 && has_nibble_blocks(file.entry(name)))
      return taken(nibbles_of(file, name), cut, name);
    ops::StoredMatrix whole = read(file, name);
    if (is_quantised(tensors_, name))
      whole.scales = tensors_.get(scales_of(name));
    else if (form.int4 || (form.int8_rows && cut.axis == 1 && !cut.whole()))
      whole = ops::quantised(whole, form.int4);
    return taken(whole, cut, name);
  }

  // True if panels are packed while rows are read: the matrix passes memory once less.
  bool reads_rows(const std::string& name, const ops::WeightForm& form, const Cut& cut) const {
    const TensorFile& file = tensors_.file(name);
    const TensorEntry& entry = file.entry(name);
    return cut.whole() && !form.int4 && ops::packs_in_panels(device_) && !entry.format &&
           !entry.halves_swapped && !tensors_.maps() &&
           !shelf_->value_of<Storage>(key("stored", name, "", file.dtype(name)));
  }

  ops::StoredRows rows_of(const std::string& name) const {
    const TensorFile& file = tensors_.file(name);
    const Tensor values =
        Tensor::empty(Shape(file.entry(name).sizes), file.dtype(name), Device::meta);
    const int64_t row = values.size(1) * size_of(values.dtype());
    return {{values, is_quantised(tensors_, name) ? tensors_.get(scales_of(name)) : Tensor()},
            [file, name, row](int64_t first, int64_t rows, std::byte* to) {
              base::check_stop();
              TensorEntry part = file.entry(name);
              part.begin += first * row;
              part.end = part.begin + rows * row;
              part.sizes.front() = rows;
              file.with({{name, part}}).read_stored(name, to);
            }};
  }

  // True if a checked matrix, or each matrix of a pair, is stored in rows; otherwise all are in
  // panels.
  bool in_rows(const std::string& name, const std::string& up) const {
    const bool paired = !up.empty();
    const WeightOrder order =
        is_quantised(tensors_, name) ? order_of(tensors_, name) : WeightOrder::rows;
    const WeightOrder other = paired && is_quantised(tensors_, up) ? order_of(tensors_, up)
                              : paired                             ? WeightOrder::rows
                                                                   : order;
    require(
        order == other && (order == WeightOrder::rows || paired == (order == WeightOrder::half)),
        ErrorCode::model,
        "{}: tensor {} does not lie as it is read here, {}; quantise the folder again",
        tensors_.file(name).path(), base::printable(name),
        paired ? "together with " + base::printable(up) : "on its own");
    return order == WeightOrder::rows;
  }

  // A weight stored in panels. CPU kernels use a whole weight directly.
  ops::Weight packed(const std::string& name, const std::string& up, int64_t n, int64_t k,
                     const ops::WeightForm& form, const Cut& cut) const {
    const bool paired = !up.empty();
    const TensorFile& file = tensors_.file(name);
    const int64_t half = file.entry(name).bytes(), bytes = paired ? 2 * half : half;
    ops::StoredPanels panels{.n = n, .k = k, .paired = paired};
    if (!form.int4) {  // else they lie within
      panels.scales[0] = tensors_.get(scales_of(name));
      if (paired) panels.scales[1] = tensors_.get(scales_of(up));
    }
    const bool as_it_is = cut.whole() && ops::packs_in_panels(device_);
    std::shared_ptr<Storage> storage;
    if (as_it_is) storage = mapped(name, up, bytes);
    if (storage) {
      storage = counted(*storage);
    } else {
      storage = as_it_is ? Storage::allocate(bytes, Device::cpu, tensor::MemoryClass::weights)
                         : buffers_->lend(bytes);
      file.read(name, storage->data());
      if (paired) tensors_.file(up).read(up, storage->data() + half);
    }
    const int64_t steps = k / ops::kStepElements, step = ops::step_bytes(form.int4);
    panels.values = Tensor::over(storage, 0, {bytes / (steps * step), steps, step},
                                 form.int4 ? DType::u8 : DType::i8);
    if (cut.whole()) return ops::pack_panels(panels, device_, form.int8_rows);
    auto [w, other] = ops::rows_of(panels);
    w = taken(w, cut, name);
    return paired ? ops::pack_paired_weight(w, taken(other, cut, up), form, device_)
                  : ops::pack_weight(w, form, device_);
  }

  // Maps a weight from its file, a pair as adjacent tensors; null if the layout does not fit, or
  // files are not mapped.
  std::shared_ptr<Storage> mapped(const std::string& name, const std::string& up,
                                  int64_t bytes) const {
    if (!tensors_.maps()) return nullptr;
    const TensorFile& file = tensors_.file(name);
    if (!up.empty() && !(file.has(up) && file.entry(up).begin == file.entry(name).end))
      return nullptr;
    const auto at = file.map(name, bytes);
    if (!at) return nullptr;
    return Storage::view(at.get(), bytes, at);
  }

  static std::shared_ptr<Storage> counted(const Storage& mapped) {
    return Storage::part(mapped, 0, mapped.bytes(), tensor::MemoryClass::weights);
  }

  const TensorFile& floats(const std::string& name, const Shape& shape) const {
    const TensorFile& file = checked(name, shape);
    const DType dtype = file.dtype(name);
    require(is_float(dtype), ErrorCode::model,
            "{}: tensor {} has the dtype {}; expected f32, bf16 or f16", file.path(),
            base::printable(name), name_of(dtype));
    return file;
  }

  // Identity of a packed weight within the process.
  std::string key(std::string_view form, const std::string& name, const std::string& second,
                  const ops::WeightForm& packed, const Cut& cut = {}) const {
    return fmt::format("{} {} {} {} {}", nn::weight_key(form, name + " " + second, packed, cut),
                       name_of(device_), ops::packing_of(device_), place_of(name),
                       second.empty() ? "" : place_of(second));
  }
  // A file with several parts may hold a name at several places.
  std::string place_of(const std::string& name) const {
    const TensorFile& file = tensors_.file(name);
    return fmt::format("{} {}", file.identity(), file.entry(name).begin);
  }

  std::shared_ptr<Storage> there(const Tensor& stored) const {
    auto copy = Storage::allocate(stored.bytes(), device_, tensor::MemoryClass::weights);
    tensor::copy_into(Tensor::over(copy, 0, stored.shape(), stored.dtype()), stored);
    return copy;
  }

  TensorSet tensors_;
  std::shared_ptr<WeightStore::Shelf> shelf_;
  std::shared_ptr<ReadBuffers> buffers_ = std::make_shared<ReadBuffers>();
  Device device_;
};

}  // namespace

WeightStore::WeightStore() : shelf_(std::make_shared<Shelf>()) {}

std::shared_ptr<const nn::Weights> WeightStore::open(TensorSet tensors, Device device) const {
  return std::make_shared<const StoredWeights>(std::move(tensors), shelf_, device);
}

int64_t WeightStore::live() const {
  // A thread that packs one weight may look for another: no slot is locked under the shelf's lock.
  std::vector<std::shared_ptr<Shelf::Slot>> slots;
  {
    const std::lock_guard lock(shelf_->mutex);
    for (const auto& [key, slot] : shelf_->slots) slots.push_back(slot);
  }
  int64_t count = 0;
  for (const auto& slot : slots) {
    const std::lock_guard packing(slot->packing);
    count += slot->value.expired() ? 0 : 1;
  }
  return count;
}

}  // namespace tessera::load
