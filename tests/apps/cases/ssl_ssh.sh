# what: ssh-keygen and openssl with keys, certificates and data on the prefix: made, read,
#   fingerprints, signed, verified, encrypted
# needs: command ssh-keygen; command openssl
# version: openssl version
# ignore: data/keys/* out/*
# prepare
mkdir "$DATA/keys" && cd "$DATA/keys" && ssh-keygen -q -t ed25519 -N '' -C test -f ed &&
  ssh-keygen -q -t rsa -b 2048 -m PEM -N secret -C test -f rsa &&
  openssl genrsa -out key.pem 2048 2> /dev/null &&
  openssl req -x509 -new -key key.pem -subj /CN=test -days 3650 -out cert.pem
# run
cd "$DATA/keys" || exit 1
ssh-keygen -l -f ed; ssh-keygen -l -f ed.pub
ssh-keygen -y -f ed | cut -d ' ' -f 1,2 | cmp - <(cut -d ' ' -f 1,2 ed.pub) && echo same
ssh-keygen -y -P secret -f rsa | cksum; ssh-keygen -y -P wrong -f rsa; echo "status $?"
ssh-keygen -p -q -P '' -N new -f ed; ssh-keygen -y -P new -f ed | cksum
ssh-keygen -q -t ed25519 -N '' -f made
ssh-keygen -y -f made | cut -d ' ' -f 2 | cmp - <(cut -d ' ' -f 2 made.pub) && echo same
ssh-keygen -Y sign -q -n file -f made - < ../text/words > "$OUT/sig" 2> "$OUT/err"
ssh-keygen -Y check-novalidate -n file -f made -s "$OUT/sig" < ../text/words | cut -d ' ' -f 1-3
chmod 644 made; ssh-keygen -y -f made > "$OUT/refused" 2>&1; echo "status $?"
openssl rsa -in key.pem -check -noout 2>&1; openssl x509 -in cert.pem -noout -subject -fingerprint
openssl rsa -in key.pem -pubout 2> /dev/null | cksum
openssl dgst -sha256 -sign key.pem -out "$OUT/s" ../binary/100001
openssl dgst -sha256 -verify <(openssl rsa -in key.pem -pubout 2> /dev/null) -signature "$OUT/s" \
  ../binary/100001
cksum < "$OUT/s"
openssl verify -CAfile cert.pem cert.pem
openssl enc -aes-256-cbc -pbkdf2 -S 0011223344556677 -pass file:../text/one -in ../text/long \
  -out ../text/enc
openssl enc -d -aes-256-cbc -pbkdf2 -S 0011223344556677 -pass file:../text/one -in ../text/enc |
  cmp - ../text/long && echo decrypted
openssl base64 -in ../binary/511 | cksum; openssl sha256 ../binary/*
openssl asn1parse -in cert.pem | wc -l; openssl rsa -in ../text/one -noout 2> /dev/null
echo "status $?"
exit 0
