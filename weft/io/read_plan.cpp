#include <algorithm>
#include <cstring>
#include <tuple>

#include "weft/core/error.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

using core::fail;
using core::InternalError;

namespace {

constexpr uint64_t kMaxGap = 64 * 1024;
constexpr uint64_t kMaxSpan = uint64_t{8} << 20;
// From here a run is worth a system call of its own, straight to its place.
constexpr uint64_t kLongRun = uint64_t{1} << 20;

// A run and where its bytes go.
struct Piece {
  ByteRun run;
  size_t destination = 0;

  uint64_t end() const { return run.offset + run.num_bytes; }
};

std::vector<Piece> sorted_pieces(std::span<const ByteRun> runs, size_t destination_bytes) {
  std::vector<Piece> pieces;
  pieces.reserve(runs.size());
  size_t position = 0;
  for (const ByteRun& run : runs) {
    if (run.num_bytes > destination_bytes - position) {
      fail<InternalError>("io.TensorFile.read: runs exceed the destination of ", destination_bytes,
                          " bytes");
    }
    if (run.num_bytes > 0) pieces.push_back({run, position});
    position += run.num_bytes;
  }
  core::check<InternalError>(position == destination_bytes, "io.TensorFile.read: runs of ",
                             position, " bytes for a destination of ", destination_bytes);
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.run.file, a.run.offset) < std::tie(b.run.file, b.run.offset);
  });
  return pieces;
}

// One read: the pieces [first, last) lie in [offset, offset + num_bytes) of one file.
struct Span {
  size_t first = 0;
  size_t last = 0;
  uint64_t offset = 0;
  uint64_t num_bytes = 0;
};

Span next_span(const std::vector<Piece>& pieces, size_t first) {
  const Piece& head = pieces[first];
  Span span{first, first + 1, head.run.offset, head.run.num_bytes};
  if (head.run.num_bytes >= kLongRun) return span;
  for (; span.last < pieces.size(); ++span.last) {
    const Piece& piece = pieces[span.last];
    const uint64_t end = std::max(span.offset + span.num_bytes, piece.end());
    const bool is_near = piece.run.file == head.run.file && piece.run.num_bytes < kLongRun &&
                         piece.run.offset <= span.offset + span.num_bytes + kMaxGap;
    if (!is_near || end - span.offset > kMaxSpan) break;
    span.num_bytes = end - span.offset;
  }
  return span;
}

void check_in_file(const Piece& piece, const std::vector<std::shared_ptr<core::File>>& files) {
  const ByteRun& run = piece.run;
  if (run.file >= files.size() || run.num_bytes > files[run.file]->size() ||
      run.offset > files[run.file]->size() - run.num_bytes) {
    fail<InternalError>("io.TensorFile.read: a run of ", run.num_bytes, " bytes at byte ",
                        run.offset, " of file ", run.file, " is outside of it");
  }
}

}  // namespace

void TensorFile::read(std::span<const ByteRun> runs, std::span<std::byte> destination,
                      ReadStats* stats) const {
  const std::vector<Piece> pieces = sorted_pieces(runs, destination.size());
  for (const Piece& piece : pieces) check_in_file(piece, files_);
  std::vector<std::byte> buffer;
  for (size_t first = 0; first < pieces.size();) {
    const Span span = next_span(pieces, first);
    const core::File& file = *files_[pieces[first].run.file];
    if (span.last == first + 1) {
      file.read_at(span.offset, destination.subspan(pieces[first].destination, span.num_bytes));
    } else {
      if (buffer.size() < span.num_bytes) buffer.resize(span.num_bytes);
      file.read_at(span.offset, std::span(buffer).first(span.num_bytes));
      for (size_t i = first; i < span.last; ++i) {
        std::memcpy(destination.data() + pieces[i].destination,
                    buffer.data() + (pieces[i].run.offset - span.offset), pieces[i].run.num_bytes);
      }
    }
    if (stats != nullptr) {
      stats->read_bytes += span.num_bytes;
      ++stats->num_spans;
    }
    first = span.last;
  }
  if (stats != nullptr) stats->planned_bytes += destination.size();
}

}  // namespace weft::io
