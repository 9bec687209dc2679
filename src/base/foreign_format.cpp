#include "base/foreign_format.h"

#include <algorithm>
#include <cctype>

#include "base/fail.h"

namespace tessera::base {
namespace {

using namespace std::string_view_literals;

struct Format {
  std::string_view magic;
  const char* says;
};

constexpr const char* kArchive = "an archive, which is not read: unpack it";
constexpr const char* kPickle =
    "a PyTorch pickle, whatever its name says, which is not read: download the safetensors files "
    "of the same model, or convert it (save_pretrained of diffusers and transformers writes them)";

// "PK" begins a ZIP archive, the form of PyTorch's files since 1.6.
constexpr Format kFormats[] = {
    {"version https://git-lfs.github.com/spec"sv,
     "a Git LFS pointer, which stands for the file: run 'git lfs pull' in its folder, or download "
     "the model with 'hf download'"},
    {"# xet version"sv,
     "a Xet pointer, which stands for the file: download the model with 'hf download'"},
    {"PK\3\4"sv, kPickle},
    {"\x80\2"sv, kPickle},
    {"\x80\3"sv, kPickle},
    {"\x80\4"sv, kPickle},
    {"\x80\5"sv, kPickle},
    {"GGUF"sv,
     "a GGUF file, whatever its name says: give it as `transformer` or `text_encoder` beside the "
     "model's folder, or download the safetensors files of the same model"},
    {"\x1f\x8b"sv, kArchive},
    {"\xfd\x37zXZ"sv, kArchive},
    {"BZh"sv, kArchive},
    {"\x28\xb5\x2f\xfd"sv, kArchive},
};

bool is_html(std::string_view begin) {
  if (begin.starts_with("\xef\xbb\xbf")) begin.remove_prefix(3);
  while (!begin.empty() && std::isspace(static_cast<unsigned char>(begin.front())))
    begin.remove_prefix(1);
  for (const std::string_view tag : {"<!doctype html"sv, "<html"sv, "<head"sv})
    if (std::ranges::equal(begin.substr(0, tag.size()), tag, {},
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); }))
      return true;
  return false;
}

bool is_blank(std::string_view begin) {
  return begin.size() >= 8 && std::ranges::all_of(begin, [](char c) { return c == '\0'; });
}

}  // namespace

std::string foreign_format(std::string_view begin) {
  begin = begin.substr(0, kForeignBytes);
  for (const Format& format : kFormats)
    if (begin.starts_with(format.magic)) return format.says;
  if (is_html(begin))
    return "an HTML page, a web site's answer in place of the file: download the file itself (with "
           "'hf download', or by an address with /resolve/ where a page has /blob/)";
  if (is_blank(begin))
    return "full of zeros at its start, as a download that did not end leaves it: download it "
           "again";
  return "";
}

void refuse_foreign(std::string_view begin, const std::string& path, ErrorCode code) {
  if (const std::string says = foreign_format(begin); !says.empty())
    fail(code, "'{}' is {}", path, says);
}

}  // namespace tessera::base
