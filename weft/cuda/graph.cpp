#include "weft/cuda/graph.h"

#include "weft/cuda/runtime.h"

namespace weft::cuda {

struct Graph::Recorded {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  Recorded() = default;
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  // At a process's end the driver may be gone already: errors say nothing.
  ~Recorded() {
    if (executable != nullptr) static_cast<void>(cudaGraphExecDestroy(executable));
    if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  }
};

Graph::Graph(const std::function<void()>& run) : recorded_(std::make_shared<Recorded>()) {
  check_cuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  try {
    run();
  } catch (...) {
    // The stream stops recording; the error that ended the recording is the one that is thrown.
    static_cast<void>(cudaStreamEndCapture(stream(), &recorded_->graph));
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream(), &recorded_->graph), "cudaStreamEndCapture");
  check_cuda(cudaGraphInstantiate(&recorded_->executable, recorded_->graph, 0),
             "cudaGraphInstantiate");
}

void Graph::launch() const {
  check_cuda(cudaGraphLaunch(recorded_->executable, stream()), "cudaGraphLaunch");
}

}  // namespace weft::cuda
