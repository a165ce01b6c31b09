#!/usr/bin/env python3
"""Says whether CUDA works here, through the driver library alone (ctypes; nothing to install).

Names the device, sends 1 MiB there and back, runs a kernel and checks all it wrote. One line a call, as the program
cuda-probe prints them; scripts/run-cuda-probe.sh reads them. Exit status: 0 if every line worked, 1 otherwise.
"""
import argparse
import array
import ctypes
import glob
import os
import struct
import sys

SHIM = "/opt/smolvm-cuda/libcuda.so.1"
ROUNDTRIP_BYTES = 1 << 20
ELEMENTS = 1 << 24
THREADS = 256
BLOCK = 1 << 16  # elements; data is made and compared a block at a time, by whole-buffer operations

# PTX ISA 6.0 and sm_50: every driver since CUDA 9 takes it, for every GPU since Maxwell.
PTX = b"""
.version 6.0
.target sm_50
.address_size 64

.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
  .reg .pred %outside;
  .reg .f32 %x, %y, %sum;
  .reg .b32 %block, %size, %thread, %i, %n;
  .reg .b64 %a, %b, %c, %offset;

  ld.param.u32 %n, [n];
  mov.u32 %block, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mov.u32 %thread, %tid.x;
  mad.lo.u32 %i, %block, %size, %thread;
  setp.ge.u32 %outside, %i, %n;
  @%outside bra DONE;
  ld.param.u64 %a, [a];
  ld.param.u64 %b, [b];
  ld.param.u64 %c, [c];
  cvta.to.global.u64 %a, %a;
  cvta.to.global.u64 %b, %b;
  cvta.to.global.u64 %c, %c;
  mul.wide.u32 %offset, %i, 4;
  add.u64 %a, %a, %offset;
  add.u64 %b, %b, %offset;
  add.u64 %c, %c, %offset;
  ld.global.f32 %x, [%a];
  ld.global.f32 %y, [%b];
  add.rn.f32 %sum, %x, %y;
  st.global.f32 [%c], %sum;
DONE:
  ret;
}
\0"""


def line(text):
    print(text, flush=True)


class CallFailed(Exception):
    """A driver call gave an error code."""

    def __init__(self, name, code):
        super().__init__(name)
        self.name = name
        self.code = code


class Driver:
    """The driver library's calls, each returning its error code."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        pointer, size, unsigned = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
        device_pointer = ctypes.c_uint64
        for name, symbol, arguments in (
            ("cuInit", "cuInit", [unsigned]),
            ("cuDeviceGetCount", "cuDeviceGetCount", [pointer]),
            ("cuDeviceGet", "cuDeviceGet", [pointer, ctypes.c_int]),
            ("cuDeviceGetName", "cuDeviceGetName", [pointer, ctypes.c_int, ctypes.c_int]),
            ("cuCtxCreate", "cuCtxCreate_v2", [pointer, unsigned, ctypes.c_int]),
            ("cuCtxDestroy", "cuCtxDestroy_v2", [pointer]),
            ("cuCtxSynchronize", "cuCtxSynchronize", []),
            ("cuMemGetInfo", "cuMemGetInfo_v2", [pointer, pointer]),
            ("cuMemAlloc", "cuMemAlloc_v2", [pointer, size]),
            ("cuMemFree", "cuMemFree_v2", [device_pointer]),
            ("cuMemcpyHtoD", "cuMemcpyHtoD_v2", [device_pointer, pointer, size]),
            ("cuMemcpyDtoH", "cuMemcpyDtoH_v2", [pointer, device_pointer, size]),
            ("cuModuleLoadData", "cuModuleLoadData", [pointer, pointer]),
            ("cuModuleUnload", "cuModuleUnload", [pointer]),
            ("cuModuleGetFunction", "cuModuleGetFunction", [pointer, pointer, ctypes.c_char_p]),
            ("cuLaunchKernel", "cuLaunchKernel", [pointer] + [unsigned] * 7 + [pointer] * 3),
        ):
            function = getattr(library, symbol, None)
            if function is None:
                raise OSError("the library has no " + symbol)
            function.argtypes = arguments
            function.restype = ctypes.c_int
            setattr(self, name, function)


def check(driver, name, *arguments):
    code = getattr(driver, name)(*arguments)
    if code != 0:
        raise CallFailed(name, code)


def address_of(buffer):
    """The address of a bytearray's bytes, which must outlive its use."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def load_driver(path):
    try:
        driver = Driver(path)
    except OSError as error:
        line("load_shim -> FAILED %s" % error)
        if glob.glob("/lib/ld-musl-*"):
            line("hint: this image's C library is musl; the shim needs a glibc image, such as python:3.12-slim")
        elif path == SHIM and not os.path.exists(path):
            line("hint: %s is there only in a machine started with --cuda" % path)
        elif path == SHIM:
            line("hint: the shim needs a glibc image, and a Python of its own architecture")
        else:  # named by the user, or by $SMOLVM_CUDA_SHIM
            line("hint: %s is not the shim's usual place; in a machine started with --cuda that is %s" % (path, SHIM))
        return None
    line("load_shim -> ok %s" % path)
    return driver


def open_device(driver):
    """Returns the first device, or None."""
    code = driver.cuInit(0)
    line("cuInit -> %d" % code)
    if code != 0:
        return None
    count = ctypes.c_int(0)
    code = driver.cuDeviceGetCount(ctypes.byref(count))
    line("cuDeviceGetCount -> %d count = %d" % (code, count.value))
    if code != 0 or count.value < 1:
        return None
    device = ctypes.c_int(0)
    name = ctypes.create_string_buffer(256)
    code = driver.cuDeviceGet(ctypes.byref(device), 0)
    if code == 0:
        code = driver.cuDeviceGetName(name, 255, device)
    line("cuDeviceGetName -> %d name = %s" % (code, name.value.decode("utf-8", "replace")))
    return device if code == 0 else None


def roundtrip(driver):
    """Sends bytes that differ everywhere to the device and compares what comes back."""
    sent = bytearray(array.array("I", range(1, ROUNDTRIP_BYTES // 4 + 1)).tobytes())
    received = bytearray(ROUNDTRIP_BYTES)
    memory = ctypes.c_uint64(0)
    code = driver.cuMemAlloc(ctypes.byref(memory), ROUNDTRIP_BYTES)
    line("cuMemAlloc   -> %d" % code)
    if code != 0:
        return False
    code = driver.cuMemcpyHtoD(memory, address_of(sent), ROUNDTRIP_BYTES)
    line("cuMemcpyHtoD -> %d" % code)
    good = code == 0
    code = driver.cuMemcpyDtoH(address_of(received), memory, ROUNDTRIP_BYTES)
    line("cuMemcpyDtoH -> %d" % code)
    good = good and code == 0
    line("roundtrip first 16 bytes match: %s" % (good and sent[:16] == received[:16]))
    code = driver.cuMemFree(memory)
    line("cuMemFree    -> %d" % code)
    match = good and sent == received
    line("roundtrip all bytes match: %s" % match)
    return match and code == 0


class Block:
    """One block's values, as float32 bytes; the program cuda-probe uses the same.

    Element i is a = +-(2^23 + i mod 2^16) and b = +-2^16 * (i / 2^16 mod 2^7), negative in every second run of 2^23
    elements, so c = a + b is +-(2^23 + i mod 2^23): exact, and no two of 16,777,216 are the same. The bit pattern of
    2^23 + k is 0x4B000000 + k: within a block only the two low bytes of a and c change.
    """

    def __init__(self):
        counter = array.array("I", range(0x4B000000, 0x4B000000 + BLOCK))
        if sys.byteorder == "big":
            counter.byteswap()
        self.template = bytearray(counter.tobytes())

    def first(self, index):
        return self._with_high_bits(0x4B00 | self._sign(index))

    def second(self, index):
        value = float((index & 0x7F) << 16)
        return bytearray(struct.pack("<f", -value if self._sign(index) else value) * BLOCK)

    def total(self, index):
        return self._with_high_bits((0x4B00 | self._sign(index)) + (index & 0x7F))

    @staticmethod
    def _sign(index):
        return 0x8000 if index & 0x80 else 0

    def _with_high_bits(self, bits):
        self.template[2::4] = bytes([bits & 0xFF]) * BLOCK
        self.template[3::4] = bytes([bits >> 8]) * BLOCK
        return self.template


def run_vector_add(driver, elements, allocated):
    """True if the kernel's output is right. What it allocates on the device it adds to `allocated`."""
    module = ctypes.c_void_p()
    function = ctypes.c_void_p()
    check(driver, "cuModuleLoadData", ctypes.byref(module), PTX)
    check(driver, "cuModuleGetFunction", ctypes.byref(function), module, b"vector_add")
    for _ in range(3):
        memory = ctypes.c_uint64(0)
        check(driver, "cuMemAlloc", ctypes.byref(memory), elements * 4)
        allocated.append(memory)
    first, second, total = allocated

    block = Block()
    blocks = [(i, min(BLOCK, elements - i * BLOCK) * 4) for i in range((elements + BLOCK - 1) // BLOCK)]
    for index, size in blocks:
        offset = index * BLOCK * 4
        values = block.first(index)
        check(driver, "cuMemcpyHtoD", first.value + offset, address_of(values), size)
        values = block.second(index)
        check(driver, "cuMemcpyHtoD", second.value + offset, address_of(values), size)

    count = ctypes.c_uint32(elements)
    arguments = [ctypes.addressof(argument) for argument in (first, second, total, count)]
    parameters = (ctypes.c_void_p * 4)(*arguments)
    grid = (elements + THREADS - 1) // THREADS
    check(driver, "cuLaunchKernel", function, grid, 1, 1, THREADS, 1, 1, 0, None, parameters, None)
    check(driver, "cuCtxSynchronize")

    match = True
    for index, size in blocks:
        received = bytearray(size)
        check(driver, "cuMemcpyDtoH", address_of(received), total.value + index * BLOCK * 4, size)
        match = match and received == memoryview(block.total(index))[:size]
    check(driver, "cuModuleUnload", module)
    return match


def vector_add(driver, elements):
    code, match, allocated = 0, False, []
    try:
        match = run_vector_add(driver, elements, allocated)
    except CallFailed as error:
        code = error.code
        print("cuda-probe.py: vector_add: %s failed" % error.name, file=sys.stderr)
    for memory in allocated:
        driver.cuMemFree(memory)
    line("vector_add -> %d elements = %d match: %s" % (code, elements, match))
    return match


def probe(path, elements):
    driver = load_driver(path)
    if driver is None:
        return False
    device = open_device(driver)
    if device is None:
        return False
    context = ctypes.c_void_p()
    code = driver.cuCtxCreate(ctypes.byref(context), 0, device)
    line("cuCtxCreate -> %d" % code)
    if code != 0:
        return False
    free, total = ctypes.c_size_t(0), ctypes.c_size_t(0)
    code = driver.cuMemGetInfo(ctypes.byref(free), ctypes.byref(total))
    line("cuMemGetInfo -> %d total MiB = %d" % (code, total.value >> 20))
    good = code == 0
    good = roundtrip(driver) and good
    good = vector_add(driver, elements) and good
    driver.cuCtxDestroy(context)
    return good


def elements_number(text):
    value = int(text)
    if not 1 <= value <= 1 << 30:
        raise ValueError(text)
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", metavar="PATH", default=os.environ.get("SMOLVM_CUDA_SHIM") or SHIM,
                        help="the driver library to load (default: $SMOLVM_CUDA_SHIM, else %s)" % SHIM)
    parser.add_argument("--elements", metavar="N", type=elements_number, default=ELEMENTS,
                        help="elements of the vector add, 1 to 2^30 (default: %d)" % ELEMENTS)
    options = parser.parse_args()
    if not options.library:
        parser.error("--library takes a path, not ''")
    return 0 if probe(options.library, options.elements) else 1


if __name__ == "__main__":
    sys.exit(main())
