// Moves many small pieces of device memory, one warp to a piece at a time: from blocks into the staging ring (gather)
// or from the ring into blocks (scatter), as the table says.
//
// table: three rows of `count` numbers in host memory: destination, source, bytes. Pieces do not overlap. Compiled at
// run time; few blocks are launched, so that the engine's own kernels keep nearly all of the device.

extern "C" __global__ void move_pieces(const unsigned long long* table, int count) {
  const int lane = threadIdx.x & 31;
  const int warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
  const int warps = (gridDim.x * blockDim.x) >> 5;
  for (int piece = warp; piece < count; piece += warps) {
    const unsigned long long to = table[piece];
    const unsigned long long from = table[count + piece];
    const unsigned long long bytes = table[2ull * count + piece];
    if (((to | from | bytes) & 15) == 0) {
      uint4* target = reinterpret_cast<uint4*>(to);
      const uint4* source = reinterpret_cast<const uint4*>(from);
      const unsigned long long words = bytes >> 4;
      unsigned long long i = lane;
      for (; i + 96 < words; i += 128) {  // four in flight to a thread: the memory's latency is long
        const uint4 a = source[i], b = source[i + 32], c = source[i + 64], d = source[i + 96];
        target[i] = a;
        target[i + 32] = b;
        target[i + 64] = c;
        target[i + 96] = d;
      }
      for (; i < words; i += 32) target[i] = source[i];
    } else {
      char* target = reinterpret_cast<char*>(to);
      const char* source = reinterpret_cast<const char*>(from);
      for (unsigned long long i = lane; i < bytes; i += 32) target[i] = source[i];
    }
  }
}
