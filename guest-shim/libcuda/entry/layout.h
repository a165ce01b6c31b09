// How a kernel's parameters are packed: from the reply that made the handle, else asked for once.
#pragma once

#include "guest-shim/libcuda/entry/entry.h"

namespace smolvm::guest {

template <typename GetFunctionReply>
void RememberLayout(uint64_t function_id, const GetFunctionReply& reply) {
  if (reply.param_offsets.size() != reply.param_sizes.size()) return;
  TheSession().functions().Add(function_id,
                               {reply.param_offsets, reply.param_sizes, 0, reply.has_layout});
}

// Null with a CUresult when the handle is no function's.
const FunctionLayout* LayoutOf(CUfunction function, CUresult* result);

}  // namespace smolvm::guest
