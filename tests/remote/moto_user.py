"""Creates a user of moto with a key, and the bucket "bucket"; from then on moto checks every signature and permission. Prints the key
as variables of a shell. Usage: moto_user.py URL."""
import json
import sys
import urllib.request

import boto3

url = sys.argv[1]
any_key = dict(endpoint_url=url, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
iam = boto3.client("iam", **any_key)


def create_user(name, actions):
    iam.create_user(UserName=name)
    statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    print(f"{name}_id={key['AccessKeyId']} {name}_secret={key['SecretAccessKey']}")


create_user("all", "s3:*")
create_user("reader", ["s3:Get*", "s3:List*"])
boto3.client("s3", **any_key).create_bucket(Bucket="bucket")
request = urllib.request.Request(url + "/moto-api/reset-auth", data=b"0", method="POST", headers={"Content-Type": "text/plain"})
urllib.request.urlopen(request)
