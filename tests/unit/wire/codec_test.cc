// Our generated codecs held against libprotobuf's, message by message, and against bytes that are
// no message.
#include <google/protobuf/compiler/importer.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "protocol/api/codec_table.h"

namespace smolvm::codec {
namespace {

namespace pb = google::protobuf;
using FD = pb::FieldDescriptor;

constexpr int kRounds = 40;

class Errors : public pb::compiler::MultiFileErrorCollector {
 public:
  void AddError(const std::string& file, int line, int, const std::string& message) override {
    ADD_FAILURE() << file << ":" << line << ": " << message;
  }
};

// The specification's own descriptors, read from its sources.
class Specification {
 public:
  Specification() : importer_(&tree_, &errors_) {
    tree_.MapPath("", SMOLVM_SOURCE_DIR);
    tree_.MapPath("", SMOLVM_PROTOBUF_INCLUDE);
    const std::string folder = "protocol/api/";
    for (const auto& entry : std::filesystem::directory_iterator(SMOLVM_SOURCE_DIR "/" + folder)) {
      if (entry.path().extension() != ".proto") continue;
      EXPECT_NE(importer_.Import(folder + entry.path().filename().string()), nullptr);
    }
  }
  const pb::Descriptor* Find(const char* name) const {
    return importer_.pool()->FindMessageTypeByName(name);
  }

 private:
  pb::compiler::DiskSourceTree tree_;
  Errors errors_;
  pb::compiler::Importer importer_;
};

class Filler {
 public:
  explicit Filler(unsigned seed) : random_(seed) {}

  void Fill(pb::Message* message) {
    const pb::Descriptor* type = message->GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const FD* field = type->field(i);
      if (random_() % 4 == 0) continue;
      const unsigned count = field->is_repeated() ? random_() % 5 : 1;
      for (unsigned k = 0; k < count; ++k) Set(message, field);
    }
  }

 private:
  uint64_t Number() {
    static constexpr uint64_t kEdges[] = {0,          1,          127,       128,       0x7FFFFFFF,
                                          0x80000000, 0xFFFFFFFF, INT64_MAX, UINT64_MAX};
    return random_() % 2 ? kEdges[random_() % std::size(kEdges)] : random_();
  }
  std::string Text() {
    std::string text(random_() % 40, '\0');
    for (char& c : text) c = static_cast<char>('a' + random_() % 26);
    return text;
  }

  void Set(pb::Message* message, const FD* field) {
    const pb::Reflection* reflection = message->GetReflection();
    const auto put = [&](auto set, auto add, auto value) {
      field->is_repeated() ? (reflection->*add)(message, field, value)
                           : (reflection->*set)(message, field, value);
    };
    using R = pb::Reflection;
    switch (field->cpp_type()) {
      case FD::CPPTYPE_UINT32:
        return put(&R::SetUInt32, &R::AddUInt32, static_cast<uint32_t>(Number()));
      case FD::CPPTYPE_UINT64:
        return put(&R::SetUInt64, &R::AddUInt64, static_cast<uint64_t>(Number()));
      case FD::CPPTYPE_INT32:
        return put(&R::SetInt32, &R::AddInt32, static_cast<int32_t>(Number()));
      case FD::CPPTYPE_INT64:
        return put(&R::SetInt64, &R::AddInt64, static_cast<int64_t>(Number()));
      case FD::CPPTYPE_BOOL:
        return put(&R::SetBool, &R::AddBool, true);
      case FD::CPPTYPE_FLOAT:
        return put(&R::SetFloat, &R::AddFloat, static_cast<float>(Number()));
      case FD::CPPTYPE_STRING:
        return field->is_repeated() ? reflection->AddString(message, field, Text())
                                    : reflection->SetString(message, field, Text());
      case FD::CPPTYPE_MESSAGE:
        return Fill(field->is_repeated() ? reflection->AddMessage(message, field)
                                         : reflection->MutableMessage(message, field));
      default:
        FAIL() << field->full_name();
    }
  }

  std::mt19937_64 random_;
};

TEST(Codec, AgreesWithProtobufOnEveryMessage) {
  const Specification specification;
  pb::DynamicMessageFactory factory;
  for (const Row& row : kRows) {
    const pb::Descriptor* type = specification.Find(row.name);
    ASSERT_NE(type, nullptr) << row.name;
    const std::unique_ptr<pb::Message> sent(factory.GetPrototype(type)->New()), got(sent->New());
    for (int round = 0; round < kRounds; ++round) {
      sent->Clear();
      Filler(static_cast<unsigned>(round)).Fill(sent.get());
      const std::string theirs = sent->SerializeAsString();
      std::string ours;
      ASSERT_TRUE(row.recode(theirs, &ours)) << row.name;
      ASSERT_TRUE(got->ParseFromString(ours)) << row.name;
      EXPECT_TRUE(pb::util::MessageDifferencer::Equals(*sent, *got)) << row.name << "\n"
                                                                     << sent->DebugString();
    }
  }
}

TEST(Codec, RefusesWhatProtobufRefuses) {
  const Specification specification;
  pb::DynamicMessageFactory factory;
  for (const Row& row : kRows) {
    const pb::Descriptor* type = specification.Find(row.name);
    ASSERT_NE(type, nullptr) << row.name;
    const std::unique_ptr<pb::Message> message(factory.GetPrototype(type)->New());
    Filler(7).Fill(message.get());
    const std::string whole = message->SerializeAsString();
    for (size_t length = 0; length < whole.size(); ++length) {
      std::string ours;
      const bool accepted = row.recode({whole.data(), length}, &ours);
      // A cut between fields leaves a shorter message; protobuf says which cuts those are.
      EXPECT_EQ(accepted, std::unique_ptr<pb::Message>(message->New())
                              ->ParseFromArray(whole.data(), static_cast<int>(length)))
          << row.name << " cut at " << length;
    }
  }
}

TEST(Codec, SurvivesNoise) {
  std::mt19937 random(1);
  for (const Row& row : kRows) {
    for (int round = 0; round < kRounds; ++round) {
      std::string noise(random() % 64, '\0'), out;
      for (char& c : noise) c = static_cast<char>(random());
      row.recode(noise, &out);  // must return, whatever it says
    }
  }
}

}  // namespace
}  // namespace smolvm::codec
