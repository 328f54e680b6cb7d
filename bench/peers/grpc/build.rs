//! Generates the client and server code of two gRPC calls, `exchange.Payloads/Put` and `exchange.Payloads/Get`. The calls
//! are described here, so protoc is not needed.

fn main() {
    let put = tonic_build::manual::Method::builder()
        .name("put")
        .route_name("Put")
        .input_type("crate::Payload")
        .output_type("crate::Taken")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let get = tonic_build::manual::Method::builder()
        .name("get")
        .route_name("Get")
        .input_type("crate::Wanted")
        .output_type("crate::Payload")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service =
        tonic_build::manual::Service::builder().name("Payloads").package("exchange").method(put).method(get).build();
    tonic_build::manual::Builder::new().compile(&[service]);
}
