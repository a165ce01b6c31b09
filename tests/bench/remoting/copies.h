// Copies between the host and the device, beside the same bytes over a plain socket.
#pragma once

#include "tests/bench/measure.h"
#include "tests/bench/remoting/cuda.h"
#include "tests/bench/remoting/floors.h"

namespace smolvm::bench {

// From 1 to 256 MiB, pageable and page-locked, both ways, and the first copy into memory that was
// just allocated. The bytes are such that nothing could make them fewer, and are verified. A
// context must be current.
void MeasureCopies(int rounds, Peer& peer, const Cuda& cuda, Table& table);

}  // namespace smolvm::bench
