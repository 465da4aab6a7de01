# Homebrew on Linux, from a clone:  brew install --HEAD ./packages/homebrew/calm.rb
class Calm < Formula
  desc "Post-training quantization of language models"
  homepage "https://calm.invalid"
  license "Apache-2.0"
  version "0.1.0"
  head "file://#{File.expand_path("../..", __dir__)}", using: :git, branch: "main"

  depends_on "cmake" => :build
  depends_on "gcc" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "curl"
  depends_on "jansson"
  depends_on "lapack"
  depends_on :linux
  depends_on "openblas"
  depends_on "openssl"
  depends_on "pcre2"
  depends_on "sqlite"
  depends_on "utf8proc"
  depends_on "zlib"

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCALM_TESTS=OFF", "-DCALM_PACKAGED=ON", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/calm --version")
    system bin/"calm", "algorithms"
  end
end
