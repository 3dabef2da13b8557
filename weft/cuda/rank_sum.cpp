#include "weft/cuda/rank_sum.h"

#include <dlfcn.h>

#if __has_include(<nccl.h>)
#define WEFT_HAS_NCCL_HEADER
#include <nccl.h>
#endif

#include <bit>

#include "weft/core/error.h"
#include "weft/cuda/runtime.h"

#ifndef WEFT_NCCL_LIBRARY
#define WEFT_NCCL_LIBRARY "libnccl.so.2"
#endif

namespace weft::cuda {

#ifdef WEFT_HAS_NCCL_HEADER
namespace {

// What is used of the library: it is not linked, so that the program starts without it.
struct Nccl {
  decltype(&ncclGetUniqueId) make_id = nullptr;
  decltype(&ncclCommInitRank) meet = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclCommDestroy) end = nullptr;
  decltype(&ncclGetErrorString) text_of = nullptr;

  Nccl() {
    void* const library = ::dlopen(WEFT_NCCL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [library](auto& function, const char* name) {
      function = std::bit_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    is_complete = find(make_id, "ncclGetUniqueId") && find(meet, "ncclCommInitRank") &&
                  find(all_reduce, "ncclAllReduce") && find(end, "ncclCommDestroy") &&
                  find(text_of, "ncclGetErrorString");
  }
  bool is_complete = false;
};

const Nccl& nccl() {
  static const Nccl only;
  return only;
}

void check_nccl(ncclResult_t result, const char* what) {
  core::check<core::InternalError>(result == ncclSuccess, "cuda.", what, ": ",
                                   nccl().text_of(result), "; NCCL_DEBUG=INFO says more");
}

}  // namespace

struct RankSum::Communicator {
  Communicator(const Id& id, int64_t rank, int64_t size) {
    const auto unique = std::bit_cast<ncclUniqueId>(id);
    check_nccl(nccl().meet(&own, static_cast<int>(size), unique, static_cast<int>(rank)),
               "ncclCommInitRank");
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // At a process's end the driver may be gone already: errors say nothing.
  ~Communicator() { static_cast<void>(nccl().end(own)); }

  ncclComm_t own = nullptr;
};

bool RankSum::is_available() { return nccl().is_complete; }

RankSum::Id RankSum::make_id() {
  ncclUniqueId id;
  check_nccl(nccl().make_id(&id), "ncclGetUniqueId");
  return std::bit_cast<Id>(id);
}

RankSum::RankSum(const Id& id, int64_t rank, int64_t size)
    : communicator_(std::make_shared<Communicator>(id, rank, size)) {}

void RankSum::add(float* numbers, int64_t count) const {
  check_nccl(nccl().all_reduce(numbers, numbers, static_cast<size_t>(count), ncclFloat32, ncclSum,
                               communicator_->own, stream()),
             "ncclAllReduce");
}
#else
struct RankSum::Communicator {};

bool RankSum::is_available() { return false; }

RankSum::Id RankSum::make_id() {
  core::fail<core::InternalError>("cuda.RankSum: this build knows no NCCL");
}

RankSum::RankSum(const Id& /*id*/, int64_t /*rank*/, int64_t /*size*/) { make_id(); }

void RankSum::add(float* /*numbers*/, int64_t /*count*/) const { make_id(); }
#endif

}  // namespace weft::cuda
