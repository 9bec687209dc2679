#include "kernels/conv.h"

#if defined(__x86_64__)
#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/avx2/vector.h"
#include "kernels/matmul.h"
#include "kernels/scratch.h"
#include "tensor/scope.h"

TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {
namespace {

// Pixels of a product: large enough that few input lines are prepared twice, small enough that the
// patches stay in the cache.
constexpr int64_t kFewest = 1024, kMost = 16384, kPatchBytes = int64_t{4} << 20;

// Element type of copied patches. Products with i8 quantise each pixel.
DType patch_dtype(const PackedConv& w) { return w.dtype == DType::i8 ? DType::f32 : w.dtype; }

/// Scale and shift of an input's channels, which repeat every `period` elements.
struct Affine {
  std::array<float, 32> repeated;  // repeated values for few channels
  const float *scale = nullptr, *shift = nullptr;
  int64_t period = 0;

  Affine(const ConvArgs& a, int64_t row) : period(a.weight->in) {
    if (!a.scale_shift) return;
    scale = a.scale_shift + row * 2 * period;
    shift = scale + period;
    if (period >= 16 || 16 % period != 0) return;
    // Two separate reads: gcc 12 -O1 with sanitizers miscompiles (i < 16 ? scale : shift)[i %
    // period].
    for (size_t i = 0; i < 16; ++i) {
      repeated[i] = scale[static_cast<int64_t>(i) % period];
      repeated[16 + i] = shift[static_cast<int64_t>(i) % period];
    }
    scale = repeated.data();
    shift = scale + 16;
    period = 16;
  }
  Affine(const Affine&) = delete;
  Affine& operator=(const Affine&) = delete;
};

// Prepares input elements from offset `at` on in the format of the products.
void prepare(const ConvArgs& a, const Affine& by, int64_t at, int64_t count, std::byte* out) {
  const DType dtype = patch_dtype(*a.weight);
  for (int64_t i = 0; i < count;) {
    const int64_t run = by.scale ? std::min(by.period, count - i) : count;
    for (int64_t j = 0; j < run; j += 16) {
      const Keep keep = lanes(run - j);
      Floats v = load(a.x, a.dtype, at + i + j, keep);
      if (by.scale) v = fmadd(v, load(by.scale + j, keep), load(by.shift + j, keep));
      if (a.silu) v = silu(v);
      store(out, dtype, i + j, keep, v);
    }
    i += run;
  }
}

// Copies the input under the filter at output pixel p: [kh * kw, in], zeros outside the image.
// `lines`: the prepared input from line `first` on.
void copy_patch(const ConvArgs& a, const std::byte* lines, int64_t first, int64_t p,
                std::byte* out) {
  const PackedConv& w = *a.weight;
  const int64_t shift = a.upsample ? 1 : 0;
  const auto pixel = static_cast<size_t>(w.in * size_of(patch_dtype(w)));
  const int64_t top = p / a.out_width * a.stride - a.pad_top;
  const int64_t left = p % a.out_width * a.stride - a.pad_left;
  const auto kw = static_cast<size_t>(w.kw);
  for (int64_t y = top; y < top + w.kh; ++y) {
    if (y < 0 || y >= a.height << shift) {
      std::memset(out, 0, kw * pixel);
      out += kw * pixel;
      continue;
    }
    const std::byte* line = lines + static_cast<size_t>(((y >> shift) - first) * a.width) * pixel;
    if (shift == 0 && left >= 0 && left + w.kw <= a.width) {
      std::memcpy(out, line + static_cast<size_t>(left) * pixel, kw * pixel);
      out += kw * pixel;
      continue;
    }
    for (int64_t z = left; z < left + w.kw; ++z, out += pixel)
      if (z < 0 || z >= a.width << shift)
        std::memset(out, 0, pixel);
      else
        std::memcpy(out, line + static_cast<size_t>(z >> shift) * pixel, pixel);
  }
}

/// Products of an image, in runs of pixels.
class Image {
 public:
  Image(const ConvArgs& args, int64_t row)
      : a_(args), w_(*args.weight), affine_(args, row), row_(row) {}

  /// Output pixels [first, first + count) as rows of a product.
  MatmulArgs rows(int64_t first, int64_t count) const {
    const bool as_it_is = !affine_.scale && !a_.silu && a_.dtype == patch_dtype(w_);
    const bool plain = w_.kh * w_.kw == 1 && a_.stride == 1 && !a_.upsample && a_.pad_top == 0 &&
                       a_.pad_left == 0 && a_.width == a_.out_width;
    MatmulArgs product{
        .x_dtype = patch_dtype(w_), .x_stride = w_.kh * w_.kw * w_.in, .rows = count};
    const int64_t shift = a_.upsample ? 1 : 0, last = (first + count - 1) / a_.out_width;
    // Prepares the input lines under these pixels, or the pixels themselves.
    int64_t begin = std::max<int64_t>(first / a_.out_width * a_.stride - a_.pad_top, 0) >> shift;
    const int64_t bottom = std::min(last * a_.stride - a_.pad_top + w_.kh, a_.height << shift);
    int64_t from = begin * a_.width, until = ((bottom - 1) >> shift) * a_.width + a_.width;
    if (plain) from = first, until = first + count;
    until = std::max(from, until);  // all lines may be padding
    const std::byte* lines = at(from);
    if (as_it_is) {
      if (!plain) lines = at(0), begin = 0;
    } else {
      std::byte* const out = thread_scratch(3).at_least((until - from) * pixel());
      tensor::parallel_for(until - from, 64, [&](int64_t i, int64_t end) {
        prepare(a_, affine_, row_ * a_.x_stride + (from + i) * w_.in, (end - i) * w_.in,
                out + i * pixel());
      });
      lines = out;
    }
    product.x = lines;
    if (plain) return product;
    const int64_t patch = w_.kh * w_.kw * pixel();
    std::byte* const out = thread_scratch(4).at_least(count * patch);
    tensor::parallel_for(count, 64, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) copy_patch(a_, lines, begin, first + i, out + i * patch);
    });
    product.x = out;
    return product;
  }

 private:
  int64_t pixel() const { return w_.in * size_of(patch_dtype(w_)); }
  const std::byte* at(int64_t place) const {
    return static_cast<const std::byte*>(a_.x) +
           (row_ * a_.x_stride + place * w_.in) * size_of(a_.dtype);
  }

  const ConvArgs& a_;
  const PackedConv& w_;
  const Affine affine_;
  const int64_t row_;
};

// Sums the products of each tap in f32, because each pixel has its own scale.
void multiply_taps(const PackedConv& w, const MatmulArgs& product) {
  const int64_t taps = w.kh * w.kw;
  std::byte* const sums = thread_scratch(5).at_least(product.rows * w.out * 4);
  MatmulArgs part = product;
  for (int64_t t = 0; t < taps; ++t) {
    const PackedWeight tap{.n = w.out,
                           .k = w.in,
                           .dtype = w.dtype,
                           .isa = w.isa,
                           .data = w.data.slice(0, t, t + 1).reshape({w.data.size(1)}),
                           .scales = w.scales,
                           .int8_rows = true};
    const bool last = t + 1 == taps;
    part.weight = &tap;
    part.x = static_cast<const float*>(product.x) + t * w.in;
    part.y = last ? product.y : sums;
    part.y_dtype = last ? product.y_dtype : DType::f32;
    if (t > 0) {
      part.epilogue = {};
      part.epilogue.residual = sums;
      part.epilogue.residual_stride = w.out;
    }
    matmul(part);
  }
}

}  // namespace

void conv(const ConvArgs& a) {
  const PackedConv& w = *a.weight;
  const int64_t depth = w.kh * w.kw * w.in, pixels = a.out_height * a.out_width;
  const PackedWeight filter{.n = w.out, .k = depth, .dtype = w.dtype, .isa = w.isa, .data = w.data};
  const auto element = size_of(a.y_dtype);
  const int64_t at_once =
      std::clamp(kPatchBytes / (depth * size_of(patch_dtype(w))), kFewest, kMost);
  for (int64_t row = 0; row < a.rows; ++row) {
    const Image image(a, row);
    for (int64_t first = 0; first < pixels; first += at_once) {
      const int64_t count = std::min(at_once, pixels - first);
      MatmulArgs product = image.rows(first, count);
      const int64_t at = (row * pixels + first) * w.out * element;
      product.weight = &filter;
      product.y = static_cast<std::byte*>(a.y) + at;
      product.y_dtype = a.y_dtype;
      product.y_stride = w.out;
      product.epilogue.bias = w.bias.defined() ? w.bias.data<float>() : nullptr;
      if (a.residual) {
        product.epilogue.residual = static_cast<const std::byte*>(a.residual) + at;
        product.epilogue.residual_dtype = a.y_dtype;
        product.epilogue.residual_stride = w.out;
      }
      if (w.dtype == DType::i8)
        multiply_taps(w, product);
      else
        matmul(product);
    }
  }
}

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
