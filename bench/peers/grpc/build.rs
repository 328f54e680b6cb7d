//! Generates the client and server code of one gRPC call, `exchange.Payloads/Put`. The call is described here, so
//! protoc is not needed.

fn main() {
    let put = tonic_build::manual::Method::builder()
        .name("put")
        .route_name("Put")
        .input_type("crate::Payload")
        .output_type("crate::Taken")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service = tonic_build::manual::Service::builder().name("Payloads").package("exchange").method(put).build();
    tonic_build::manual::Builder::new().compile(&[service]);
}
