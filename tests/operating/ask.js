// Asks what standard input says, by grpc-js: a list of {address, path, stream, request, options}, requests in base64. Answers with a list of
// {code, details, status}, status being what `grpc-status-details-bin` holds, in base64.
const grpc = require("@grpc/grpc-js");

const same = (bytes) => bytes;

function asked({ address, path, stream, request, options }) {
  const client = new grpc.Client(address, grpc.credentials.createInsecure(), { "grpc.enable_http_proxy": 0, ...options });
  const ofCall = { deadline: Date.now() + 10_000 };
  const bytes = Buffer.from(request, "base64");
  const told = (error) => {
    const [status] = error.metadata?.get("grpc-status-details-bin") ?? [];
    return { code: error.code, details: error.details, status: status ? status.toString("base64") : "" };
  };
  return new Promise((resolve) => {
    const done = (error) => {
      client.close();
      resolve(error ? told(error) : { code: 0, details: "", status: "" });
    };
    if (stream) {
      const answers = client.makeServerStreamRequest(path, same, same, bytes, new grpc.Metadata(), ofCall);
      answers.on("data", () => {});
      answers.on("error", done);
      answers.on("end", () => done(null));
    } else {
      client.makeUnaryRequest(path, same, same, bytes, new grpc.Metadata(), ofCall, done);
    }
  });
}

let text = "";
process.stdin.on("data", (more) => (text += more));
process.stdin.on("end", async () => {
  console.log(JSON.stringify(await Promise.all(JSON.parse(text).map(asked))));
});
