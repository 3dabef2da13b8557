// A token store's file: its parts, every token, and sequences of it.
#include <cstring>

#include "tests/fuzz/fuzz.h"
#include "weft/train/data/batches.h"
#include "weft/train/data/store/store_format.h"

namespace {

using namespace weft;

// Gives the sizes at the end the hash that they must have: a fuzzer would not find it.
std::string with_hash(std::string bytes) {
  namespace format = train::store_format;
  if (bytes.size() < format::kEndBytes) return bytes;
  char* end = bytes.data() + bytes.size() - format::kEndBytes;
  format::Numbers numbers = {};
  std::memcpy(numbers.data(), end, sizeof numbers);
  const uint64_t hash = format::hash(numbers);
  std::memcpy(end + sizeof numbers, &hash, sizeof hash);
  return bytes;
}

void read_all(const std::shared_ptr<const train::TokenStore>& store, train::Packing packing) {
  constexpr int64_t kLength = 8;
  const train::Batches batches(store, {kLength, packing}, train::all_tokens(*store), 1);
  train::Rows rows;
  for (int64_t i = 0; i < batches.num_sequences(); ++i) {
    testing::run_input([&] { batches.fill(i, 1, rows); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const testing::InputFile file("tokens");
  testing::run_input([&] {
    const auto store =
        train::TokenStore::open(file.write(with_hash({reinterpret_cast<const char*>(data), size})));
    int64_t next = 0;
    for (int64_t i = 0; i < store->num_documents(); ++i) {
      const shard::Range range = store->document(i);
      testing::expect(range.start == next && range.length > 0, "documents have all tokens");
      testing::expect(store->document_of(range.end() - 1) == i, "a token is in its document");
      next = range.end();
    }
    testing::expect(next == store->num_tokens(), "documents have all tokens");
    for (const auto packing :
         {train::Packing::kThrough, train::Packing::kWithin, train::Packing::kAlone}) {
      testing::run_input([&] { read_all(store, packing); });
    }
  });
  return 0;
}
