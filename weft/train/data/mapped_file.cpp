#include "weft/train/data/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>

#include "weft/core/error.h"

namespace weft::train {

MappedFile::MappedFile(const std::string& path) : file_(path) {
  if (file_.size() == 0) return;
  void* start = ::mmap(nullptr, file_.size(), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (start == MAP_FAILED) core::fail_errno(path, "cannot map into memory", errno);
  bytes_ = {static_cast<const std::byte*>(start), file_.size()};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace weft::train
