// Tests the names of types, which are the same in every task and in every language that has the type.
#include <crossdock/crossdock.hpp>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <complex>
#include <tuple>

namespace {

template <class T>
constexpr std::string_view name_of = crossdock::type_name<T>::value;

struct point {
  int x, y, z;
};
struct particle {
  double position[3];
  point cell;
  std::array<float, 4> weights;
  std::complex<double> phase;
  bool alive;
};
struct alignas(32) over_aligned {
  int x;
};
enum class colour : std::uint16_t {};
struct with_containers {
  crossdock::vector<int> v;
  crossdock::string s;
  double x[2];
};

}  // namespace

namespace simulation {
struct opaque {
  explicit opaque(int);
  int x;
};
template <class T>
struct pair_of {
  explicit pair_of(T);
  T a;
};
struct named {
  explicit named(int);
  int x;
};
}  // namespace simulation

template <>
struct crossdock::type_name<simulation::named> {
  static constexpr std::string_view value = "i32";
};

namespace {

TEST(TypeName, OfScalars) {
  EXPECT_EQ(name_of<bool>, "bool");
  EXPECT_EQ(name_of<int>, "i32");
  EXPECT_EQ(name_of<long>, "i64");
  EXPECT_EQ(name_of<long long>, "i64");
  EXPECT_EQ(name_of<std::uint16_t>, "u16");
  EXPECT_EQ(name_of<char>, "u8");
  EXPECT_EQ(name_of<std::byte>, "u8");
  EXPECT_EQ(name_of<std::int8_t>, "i8");
  EXPECT_EQ(name_of<float>, "f32");
  EXPECT_EQ(name_of<double>, "f64");
  EXPECT_EQ(name_of<std::complex<float>>, "c64");
  EXPECT_EQ(name_of<std::complex<double>>, "c128");
  EXPECT_EQ(name_of<colour>, "u16");
  EXPECT_EQ(name_of<const double>, "f64");
  EXPECT_EQ(name_of<std::atomic<int>>, "i32");
}

TEST(TypeName, OfArraysIsInTheOrderOfC) {
  EXPECT_EQ(name_of<float[512]>, "f32[512]");
  EXPECT_EQ(name_of<float[4][8]>, "f32[4][8]");
  EXPECT_EQ((name_of<std::array<std::array<float, 8>, 4>>), "f32[4][8]");
  EXPECT_EQ(name_of<point[3]>, "{i32,i32,i32}[3]");
}

TEST(TypeName, OfAggregatesIsTheirFields) {
  EXPECT_EQ(name_of<point>, "{i32,i32,i32}");
  EXPECT_EQ(name_of<particle>, "{f64[3],{i32,i32,i32},f32[4],c128,bool}");
  EXPECT_EQ(name_of<crossdock::handle>, "{u64,u64}");
  EXPECT_TRUE(name_of<over_aligned>.starts_with("cpp:")) << "C would lay it out otherwise";
}

TEST(TypeName, OfContainersNamesTheirElements) {
  EXPECT_EQ(name_of<crossdock::vector<double>>, "vector<f64>");
  EXPECT_EQ(name_of<crossdock::string>, "string");
  EXPECT_EQ(name_of<crossdock::ndarray<float>>, "ndarray<f32>");
  EXPECT_EQ(name_of<crossdock::vector<crossdock::vector<crossdock::string>>>, "vector<vector<string>>");
  EXPECT_EQ(name_of<with_containers>, "{vector<i32>,string,f64[2]}");
}

TEST(TypeName, OfClassesIsTheirOwnAndMakesWhatHoldsThemOpaque) {
  EXPECT_EQ(name_of<simulation::opaque>, "cpp:simulation::opaque");
  EXPECT_EQ(name_of<simulation::pair_of<int>>, "cpp:simulation::pair_of<int>");
  EXPECT_EQ(name_of<crossdock::vector<simulation::opaque>>, "cpp:vector<simulation::opaque>");
  EXPECT_EQ(name_of<simulation::named>, "i32") << "specialised by its author";
}

TEST(TypeName, OfALocalClassDoesNotNameItsFunction) {
  struct local {
    explicit local(int);
    int x;
  };
  const auto in_lambda = [] {
    struct local {
      explicit local(int);
      int x;
    };
    return name_of<local>;
  };
  EXPECT_EQ(name_of<local>, "cpp:local");
  EXPECT_EQ(in_lambda(), "cpp:local");
}

TEST(TypeName, ThatIsTooLongIsCutAndStaysItsOwn) {
  using one = simulation::opaque;
  using long_one = std::tuple<one, one, one, one, one, one, one, one, one, one, int>;
  using other = std::tuple<one, one, one, one, one, one, one, one, one, one, long>;
  EXPECT_EQ(name_of<long_one>.size(), CROSSDOCK_TYPE_NAME_MAX);
  EXPECT_NE(name_of<long_one>, name_of<other>);
}

TEST(TypeName, SizesAgreeWithTheLibrary) {
  const auto agrees = []<class T>(std::type_identity<T>) {
    std::uint64_t size = 0;
    std::uint32_t align = 0;
    EXPECT_EQ(crossdock_type_layout(name_of<T>.data(), &size, &align), CROSSDOCK_OK) << crossdock_error_message();
    EXPECT_EQ(size, sizeof(T)) << name_of<T>;
    EXPECT_EQ(align, alignof(T)) << name_of<T>;
  };
  agrees(std::type_identity<int>{});
  agrees(std::type_identity<float[4][8]>{});
  agrees(std::type_identity<particle>{});
  agrees(std::type_identity<with_containers>{});
  agrees(std::type_identity<crossdock::ndarray<std::complex<double>>>{});
}

TEST(Shareable, IsWhatMeansTheSameInEveryProcess) {
  struct pointing {
    int* p;
  };
  struct virtual_one {
    virtual ~virtual_one() = default;
  };
  EXPECT_TRUE(crossdock::is_shareable<particle>);
  EXPECT_TRUE(crossdock::is_shareable<crossdock::offset_ptr<int>>);
  EXPECT_TRUE((crossdock::is_shareable<crossdock::map<int, crossdock::string>>));
  EXPECT_FALSE(crossdock::is_shareable<int*>);
  EXPECT_FALSE(crossdock::is_shareable<pointing>);
  EXPECT_FALSE(crossdock::is_shareable<pointing[3]>);
  EXPECT_FALSE(crossdock::is_shareable<virtual_one>);
  EXPECT_FALSE(crossdock::is_shareable<std::string>);
  EXPECT_FALSE(crossdock::is_shareable<std::vector<int>>);
  EXPECT_FALSE(crossdock::is_shareable<std::span<int>>);
  EXPECT_FALSE(crossdock::is_shareable<std::string_view>);
  EXPECT_FALSE(crossdock::is_shareable<crossdock::vector<int*>>);
  EXPECT_FALSE((crossdock::is_shareable<crossdock::map<int, std::string>>));
}

}  // namespace
